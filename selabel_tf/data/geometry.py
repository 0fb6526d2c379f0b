"""Where the pixels of an augmented image come from: boxes, and one resampling rule.

A box is (top, left, height, width) in pixels of the input, real-valued: pixel i covers [i, i + 1), its centre
is i + 1/2. Output pixel j of `size` looks at the input coordinate

    start + (j + 1/2) * extent / size

and takes a weighted mean with the triangle kernel of half-width max(1, extent / size) around it, weights
outside the image left out and the rest renormalised. That is PIL's `resize(size, BILINEAR, box=box)`:
bilinear without antialiasing wherever a box is enlarged (a 32 x 32 crop policy on 32 x 32 images always is),
antialiased where it shrinks, so a photograph cut down to 224 does not alias.

Shares and turns that decide a box or a warp arrive as numbers in [0, 1), one per image: nothing here is
random.
"""

import math

import tensorflow as tf

ASPECT_RANGE = (3 / 4, 4 / 3)  # width / height of random crops, log-uniform
CENTRE_SHARE = 224 / 256  # "shorter side to 256, centre crop of 224", at any size


def whole_box(image_size):
    """The box of the full image, [4]; image_size: float32 [2], height and width."""
    return tf.concat([tf.zeros(2), image_size], 0)


def centre_box(image_size, size):
    """The centre crop of the recipes as one box [4]: the shorter side scaled to 256/224 of the output, then
    the middle of it cut out. `size` is the output's (height, width), image_size float32 [2]."""
    output_size = tf.constant(size, tf.float32)
    extent = output_size * tf.reduce_min(image_size / output_size) * CENTRE_SHARE
    return tf.concat([(image_size - extent) / 2, extent], 0)


def corner_and_centre_boxes(image_size, size):
    """Boxes [5, 4] of the centre crop's extent: top left, top right, bottom left, bottom right, centre."""
    centre = centre_box(image_size, size)
    extent = centre[2:]
    down, right = tf.unstack(image_size - extent)
    starts = tf.stack([tf.zeros(2), [0.0, right], [down, 0.0], [down, right], centre[:2]])
    return tf.concat([starts, tf.repeat(extent[None], 5, axis=0)], 1)


def window_boxes(image_size, size, top, left):
    """Boxes [B, 4] of the centre crop's extent, their place uniform: two numbers [B] per image."""
    extent = centre_box(image_size, size)[2:]
    starts = tf.stack([top, left], 1) * (image_size - extent)
    return tf.concat([starts, tf.repeat(extent[None], tf.shape(starts)[0], axis=0)], 1)


def random_boxes(image_size, area, aspect, top, left, *, area_range):
    """Boxes [B, 4] of random resized crops from four uniform numbers [B] per image.

    The crop's share of the image's area is uniform in `area_range`, its width / height log-uniform in
    ASPECT_RANGE, its place uniform. torchvision draws again (up to ten times) when a crop does not fit; a
    fixed number of draws per image cannot, so sides are clamped to the image, and then to ASPECT_RANGE, which
    only images that are more than 4/3 as long as wide can need.
    """
    # In float64: a vectorised float32 exp rounds differently in the last, partly filled register of a batch,
    # and an image's box would depend, in its last bit, on the batch it came in.
    area, aspect, top, left = (tf.cast(number, tf.float64) for number in (area, aspect, top, left))
    height, width = tf.unstack(tf.cast(image_size, tf.float64))
    low, high = area_range
    pixels = (low + (high - low) * area) * height * width
    log_low, log_high = (math.log(ratio) for ratio in ASPECT_RANGE)
    ratio = tf.exp(log_low + (log_high - log_low) * aspect)
    w = tf.minimum(tf.sqrt(pixels * ratio), width)
    h = tf.minimum(tf.sqrt(pixels / ratio), height)
    w = tf.minimum(w, h * ASPECT_RANGE[1])
    h = tf.minimum(h, w / ASPECT_RANGE[0])
    return tf.cast(tf.stack([top * (height - h), left * (width - w), h, w], 1), tf.float32)


def resample(images, box, size):
    """The same box [4] of every image [B, h, w, c], resized to `size` (height, width): float32."""
    scale = tf.constant(size, tf.float32) / box[2:]
    resampled = tf.raw_ops.ScaleAndTranslate(
        images=images,
        size=size,
        scale=scale,
        translation=-box[:2] * scale,
        kernel_type="triangle",
        antialias=True,
    )
    return tf.ensure_shape(resampled, [None, *size, images.shape[-1]])


def resample_each(images, boxes, flips, size):
    """Box i of image i, mirrored left to right where flips[i]; boxes [B, 4], flips bool [B] -> [B, *size, c].

    Two ways to the same values. Images that fit into `size` are only ever enlarged, which one batched op does
    (128 float images of 32 x 32 on two cores: the op alone 1.9 ms, batched matmuls with interpolation weights
    3.6 ms, ImageProjectiveTransformV3 6.4 ms). Others need a kernel as wide as their own box, one image at a
    time (about 4 ms each from 500 x 375 to 224 x 224, on a busy machine).
    """
    height, width = images.shape[1:3]
    if height is not None and width is not None and height <= size[0] and width <= size[1]:
        return _enlarge_each(images, boxes, flips, size)

    def one(image, box, flip):
        resampled = resample(image[None], box, size)[0]
        return tf.cond(flip, lambda: tf.reverse(resampled, [1]), lambda: resampled)

    return tf.map_fn(lambda row: one(*row), (images, boxes, flips), fn_output_signature=tf.float32)


def _enlarge_each(images, boxes, flips, size):
    # crop_and_resize wants the coordinates of the first and the last sample, as shares of the way from the
    # first pixel centre to the last, and gives black beyond those. One ring of repeated edge pixels keeps
    # samples of the outer half pixel inside. A box that runs from right to left comes out mirrored.
    # (Joined by hand: tf.pad's kernel for mirrored edges takes longer than all the rest.)
    padded = tf.concat([images[:, :1], images, images[:, -1:]], 1)
    padded = tf.concat([padded[:, :, :1], padded, padded[:, :, -1:]], 2)
    output_size = tf.constant(size, tf.float32)
    start, extent = boxes[:, :2], boxes[:, 2:]
    half_step = extent / output_size / 2
    first = start + half_step + 0.5  # -1/2 from edge to centre, +1 for the ring
    last = start + extent - half_step + 0.5
    mirrored = flips[:, None] & tf.constant([False, True])
    first, last = tf.where(mirrored, last, first), tf.where(mirrored, first, last)
    last_pixel = tf.constant([images.shape[1] + 1, images.shape[2] + 1], tf.float32)
    corners = tf.concat([first / last_pixel, last / last_pixel], 1)
    return tf.image.crop_and_resize(padded, corners, tf.range(tf.shape(images)[0]), size)


def warp(images, angle, zoom, shear, shift):
    """Turn, zoom, shear and shift images [B, h, w, c] about their centre; what comes from outside is 0.

    angle in radians (positive turns the picture counter-clockwise), zoom > 1 enlarges, shear is the sideways
    step per row, each [B]; shift [B, 2] moves the picture down and right by that share of its height and
    width. Bilinear.
    """
    height, width = images.shape[1:3]
    cos, sin = tf.cos(angle) / zoom, tf.sin(angle) / zoom
    # Output to input, x right and y down: centre + R(angle)/zoom @ [[1, shear], [0, 1]] @ (p - centre -
    # shift).
    xx, xy = cos, cos * shear - sin
    yx, yy = sin, sin * shear + cos
    centre_y, centre_x = (height - 1) / 2, (width - 1) / 2
    from_y, from_x = centre_y + shift[:, 0] * height, centre_x + shift[:, 1] * width
    x0 = centre_x - xx * from_x - xy * from_y
    y0 = centre_y - yx * from_x - yy * from_y
    zero = tf.zeros_like(xx)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([xx, xy, x0, yx, yy, y0, zero, zero], 1),
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )
