"""Colour changes of image batches, each image by its own amount.

Images are [B, h, w, 3] in [0, 1]. Three of the operations are a blend against a duller image, as in PIL's
ImageEnhance (factor 0 gives the dull image, 1 the image itself, more exaggerates), clipped to [0, 1]:

    brightness   factor * x + (1 - factor) * 0
    contrast     factor * x + (1 - factor) * mean of gray(x)
    saturation   factor * x + (1 - factor) * gray(x),    gray = 0.299 r + 0.587 g + 0.114 b

and hue turns the colour circle of HSV. `tf.image` has operations of the same names that are not these: its
contrast blends each channel against its own mean, and both its contrast and its brightness leave [0, 1].

Images of one channel have no colour: every function here refuses them.
"""

import itertools
import math

import numpy as np
import tensorflow as tf

GRAY_WEIGHTS = (0.299, 0.587, 0.114)
TO_GRAY = np.repeat(np.float32(GRAY_WEIGHTS)[:, None], 3, axis=1)  # colour @ TO_GRAY = its gray, three times
ORDERS = np.array(list(itertools.permutations(range(4))))  # [24, 4], of the four operations of the jitter

# RGB to luma and two chroma axes; a rotation of the chroma plane is the hue change that is linear in RGB.
YIQ = np.array([GRAY_WEIGHTS, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)])
RGB_FROM_YIQ = np.linalg.inv(YIQ)


def _require_colour(images):
    if images.shape[-1] != 3:
        raise ValueError(
            f"Colour operations need images with 3 channels, got shape {tuple(images.shape)}. "
            "Use an augmentation policy without colour changes for images of one channel."
        )


def gray(images):
    """Luma, [B, h, w, 1]."""
    _require_colour(images)
    return tf.matmul(images, tf.constant(GRAY_WEIGHTS, shape=[3, 1]))


def _mixed(images, matrices):
    """Every colour [3] of image i times matrices[i], [B, 3, 3]: faster than to spread one gray channel over three."""
    flat = tf.reshape(images, [tf.shape(images)[0], -1, 3])
    return tf.reshape(tf.matmul(flat, matrices), tf.shape(images))


def _gray_mean(images):
    return tf.reduce_mean(gray(images), [1, 2], keepdims=True)  # [B, 1, 1, 1]


def brightness(images, factor):
    """Blend against black; factor [B]."""
    _require_colour(images)
    return tf.clip_by_value(factor[:, None, None, None] * images, 0.0, 1.0)


def contrast(images, factor):
    """Blend against the mean gray of the image; factor [B]."""
    factor = factor[:, None, None, None]
    return tf.clip_by_value(factor * images + (1 - factor) * _gray_mean(images), 0.0, 1.0)


def saturation(images, factor):
    """Blend against the gray image; factor [B]."""
    _require_colour(images)
    factor = factor[:, None, None]
    return tf.clip_by_value(_mixed(images, factor * tf.eye(3) + (1 - factor) * TO_GRAY), 0.0, 1.0)


def hue(images, turn):
    """Add `turn` [B] (1 is once around) to the hue of HSV.

    By planes of one channel each: the same by `tf.image.rgb_to_hsv` and back took 2.6 times as long.
    """
    _require_colour(images)
    red, green, blue = tf.unstack(images, axis=-1)
    value = tf.maximum(tf.maximum(red, green), blue)
    chroma = value - tf.minimum(tf.minimum(red, green), blue)
    # (g - b) / c, 2 + (b - r) / c or 4 + (r - g) / c sixths of a turn, as red, green or blue is the largest
    sixths = tf.where(
        value == red, green - blue, tf.where(value == green, blue - red + 2 * chroma, red - green + 4 * chroma)
    )
    angle = tf.math.divide_no_nan(sixths, 6 * chroma) + turn[:, None, None]
    planes = []
    for pure in (0.0, 1 / 3, 2 / 3):  # the hue of the channel alone: there it is full, and none from 1/3 turn away on
        away = angle - pure
        away = tf.abs(away - tf.round(away))
        planes.append(value - chroma * tf.clip_by_value(6 * away - 1, 0.0, 1.0))
    return tf.transpose(tf.stack(planes), [1, 2, 3, 0])  # faster than to stack last


def grayscale(images, chosen):
    """Replace the images where chosen (bool [B]) by their gray image, keeping three channels."""
    _require_colour(images)
    return _mixed(images, tf.where(chosen[:, None, None], TO_GRAY, tf.eye(3)))


def jitter(images, factors, order):
    """Brightness, contrast, saturation by factors [B, 0:3], hue by factors [B, 3] turns, in order
    ORDERS[order[i]].

    In each of four rounds the batch is dealt out by operation, so every image pays for four operations, not
    sixteen.
    """
    rounds = tf.gather(tf.constant(ORDERS, tf.int32), order)  # [B, 4]
    for position in range(4):
        rows = [tf.where(rounds[:, position] == operation)[:, 0] for operation in range(4)]
        changed = [
            operation(tf.gather(images, row), tf.gather(factors[:, column], row))
            for column, (operation, row) in enumerate(zip((brightness, contrast, saturation, hue), rows, strict=True))
        ]
        rows = [tf.cast(row, tf.int32) for row in rows]
        images = tf.ensure_shape(tf.dynamic_stitch(rows, changed), images.shape)
    return images


def linear_jitter(images, turn, saturation, chosen_gray, brightness, contrast):
    """The jitter of the CPU protocol: all in a fixed order, linear in RGB until one clip at the end;
    arguments [B].

    Hue by rotating the chroma plane of YIQ, saturation by scaling it, grayscale by dropping it (bool):
    together one 3 x 3 matrix per image. Then brightness, and contrast about the mean gray.
    """
    mean = _gray_mean(images)  # luma is untouched by what happens to chroma
    chroma = tf.where(chosen_gray, 0.0, saturation)
    cos, sin = chroma * tf.cos(2 * math.pi * turn), chroma * tf.sin(2 * math.pi * turn)
    # x -> RGB_FROM_YIQ @ diag(1, rotation) @ YIQ @ x is affine in cos and sin, and brightness and contrast
    # scale it.
    to_rgb, to_yiq = RGB_FROM_YIQ.astype(np.float32), YIQ.astype(np.float32)
    luma = to_rgb[:, :1] @ to_yiq[:1]
    same = to_rgb[:, 1:] @ to_yiq[1:]
    turned = to_rgb[:, 1:] @ np.float32([[0, -1], [1, 0]]) @ to_yiq[1:]
    matrix = luma + cos[:, None, None] * same + sin[:, None, None] * turned  # [B, 3, 3]
    matrix *= (brightness * contrast)[:, None, None]
    offset = (brightness * (1 - contrast))[:, None, None, None] * mean
    return tf.clip_by_value(_mixed(images, tf.linalg.matrix_transpose(matrix)) + offset, 0.0, 1.0)
