"""Colour operations against PIL (as torchvision's PIL backend uses it) and against float64 NumPy."""

import colorsys
import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance

from selabel_tf.data import colour

FACTORS = np.float32([0.0, 0.6, 0.83, 1.0, 1.21, 1.4, 2.3])
TURNS = np.float32([-0.4, -0.21, -0.05, 0.0, 0.1, 0.33, 0.4])


def random_images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 13, 11, 3), dtype=np.uint8)


def unit(images):
    return tf.constant(images.astype(np.float32) / 255)


def levels_apart(result, pil_images):
    return np.abs(np.asarray(result) * 255 - np.stack([np.asarray(image, np.float32) for image in pil_images]))


@pytest.mark.parametrize(
    ("operation", "enhance"),
    [
        (colour.brightness, ImageEnhance.Brightness),
        (colour.contrast, ImageEnhance.Contrast),
        (colour.saturation, ImageEnhance.Color),
    ],
)
def test_enhancing_agrees_with_pil_to_rounding_with_each_image_by_its_own_factor(operation, enhance):
    images = random_images(len(FACTORS))
    expected = [
        enhance(Image.fromarray(image)).enhance(float(factor)) for image, factor in zip(images, FACTORS, strict=True)
    ]
    # PIL rounds the dull image to whole levels, which |1 - factor| <= 1.3 scales, and cuts the result to
    # whole levels.
    assert levels_apart(operation(unit(images), tf.constant(FACTORS)), expected).max() < 2


def test_contrast_keeps_the_mean_gray_of_an_image_that_is_not_clipped():
    images = 0.4 + 0.2 * unit(random_images(5))
    changed = colour.contrast(images, tf.constant([0.0, 0.5, 1.0, 1.4, 1.9]))
    np.testing.assert_allclose(
        tf.reduce_mean(colour.gray(changed), [1, 2, 3]),
        tf.reduce_mean(colour.gray(images), [1, 2, 3]),
        atol=1e-5,
    )


def test_hue_agrees_with_a_shift_of_pils_hsv_hue():
    images = random_images(len(TURNS), seed=1)
    expected = []
    for image, turn in zip(images, TURNS, strict=True):
        hue, saturation, value = Image.fromarray(image).convert("HSV").split()
        shifted = (np.asarray(hue, np.int64) + round(float(turn) * 255)) % 256
        hue = Image.fromarray(shifted.astype(np.uint8))
        expected.append(Image.merge("HSV", (hue, saturation, value)).convert("RGB"))
    # One of PIL's 256 steps of hue is up to 6 levels of a channel, and it cuts saturation to whole steps too.
    apart = levels_apart(colour.hue(unit(images), tf.constant(TURNS)), expected)
    assert apart.max() < 18 and apart.mean() < 2


def test_hue_agrees_with_colorsys_in_float64_for_grays_ties_and_pure_colours_too():
    corners = list(itertools.product((0.0, 0.2, 1.0), repeat=3))  # black, white, grays, two or three channels equal
    colours = np.float32([*corners, *np.random.default_rng(2).random((22, 3))]).reshape(7, 7, 3)
    turned = colour.hue(tf.constant(np.stack([colours] * len(TURNS))), tf.constant(TURNS)).numpy()
    for turn, image in zip(TURNS.tolist(), turned, strict=True):
        for before, after in zip(colours.reshape(-1, 3).tolist(), image.reshape(-1, 3), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*before)
            np.testing.assert_allclose(after, colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value), atol=1e-5)


def test_a_third_of_a_turn_moves_red_to_green_to_blue():
    images = unit(random_images(3))
    turned = colour.hue(images, tf.constant([1 / 3, -1 / 3, 1.0]))
    np.testing.assert_allclose(turned[0], tf.roll(images[0], 1, axis=-1), atol=1e-4)
    np.testing.assert_allclose(turned[1], tf.roll(images[1], -1, axis=-1), atol=1e-4)
    np.testing.assert_allclose(turned[2], images[2], atol=1e-4)


def test_grayscale_agrees_with_pil_where_it_is_chosen_and_leaves_the_rest():
    images = random_images(5)
    chosen = np.array([True, False, True, True, False])
    expected = [
        Image.fromarray(image).convert("L").convert("RGB") if gray else Image.fromarray(image)
        for image, gray in zip(images, chosen, strict=True)
    ]
    assert levels_apart(colour.grayscale(unit(images), tf.constant(chosen)), expected).max() < 0.51


@pytest.mark.parametrize("operation", [colour.brightness, colour.contrast, colour.saturation])
def test_factor_one_changes_nothing_and_large_factors_stay_between_zero_and_one(operation):
    images = unit(random_images(3))
    changed = operation(images, tf.constant([1.0, 7.0, 0.0])).numpy()
    np.testing.assert_allclose(changed[0], images[0], atol=1e-6)
    assert changed.min() >= 0 and changed.max() <= 1


def test_jitter_applies_the_four_operations_to_each_image_in_its_own_order():
    rng = np.random.default_rng(5)
    images = unit(random_images(24))
    factors = tf.constant(np.c_[rng.uniform(0.6, 1.4, (24, 3)), rng.uniform(-0.4, 0.4, 24)], tf.float32)
    order = rng.permutation(24)
    operations = (colour.brightness, colour.contrast, colour.saturation, colour.hue)
    jittered = colour.jitter(images, factors, tf.constant(order, tf.int32))
    for i in range(24):
        expected = images[i : i + 1]
        for operation in colour.ORDERS[order[i]]:
            expected = operations[operation](expected, factors[i : i + 1, operation])
        np.testing.assert_allclose(jittered[i : i + 1], expected, atol=1e-5)


def test_there_are_24_orders_and_they_give_different_pixels():
    assert len({tuple(order) for order in colour.ORDERS}) == 24
    images = tf.repeat(unit(random_images(1)), 24, axis=0)
    factors = tf.repeat(tf.constant([[1.37, 0.63, 1.33, 0.21]]), 24, axis=0)
    jittered = colour.jitter(images, factors, tf.range(24)).numpy().reshape(24, -1)
    apart = np.abs(jittered[:, None] - jittered[None]).max(-1)
    assert (apart > 1e-4).sum() > 400  # of 552 ordered pairs; a few orders differ only by operations that commute


def test_linear_jitter_agrees_with_its_steps_done_one_after_another_in_float64():
    rng = np.random.default_rng(7)
    images = random_images(7) / 255
    turn, saturation = rng.uniform(-0.1, 0.1, 7), rng.uniform(0.6, 1.4, 7)
    brightness, contrast = rng.uniform(0.6, 1.4, 7), rng.uniform(0.6, 1.4, 7)
    gray = np.arange(7) % 3 == 0
    weights = np.array(colour.GRAY_WEIGHTS)
    tensors = [tf.constant(numbers, tf.float32) for numbers in (images, turn, saturation)]
    jittered = colour.linear_jitter(
        *tensors, tf.constant(gray), tf.constant(brightness, tf.float32), tf.constant(contrast, tf.float32)
    ).numpy()
    for i in range(7):
        yiq = images[i] @ colour.YIQ.T
        chroma = (yiq[..., 1] + 1j * yiq[..., 2]) * np.exp(2j * np.pi * turn[i])
        expected = np.stack([yiq[..., 0], chroma.real, chroma.imag], -1) @ np.linalg.inv(colour.YIQ).T
        luma = (expected @ weights)[..., None]
        expected = luma + saturation[i] * (expected - luma)
        if gray[i]:
            expected = np.repeat((expected @ weights)[..., None], 3, -1)
        expected = expected * brightness[i]
        mean = (expected @ weights).mean()
        expected = np.clip(mean + contrast[i] * (expected - mean), 0, 1)
        np.testing.assert_allclose(jittered[i], expected, atol=1e-5)


def test_gray_pixels_have_no_hue_for_the_linear_jitter():
    images = tf.repeat(tf.constant([[[[0.3]], [[0.6]]]]), 3, axis=-1)
    one = tf.constant([1.0])
    jittered = colour.linear_jitter(images, tf.constant([0.09]), 1.4 * one, tf.constant([False]), one, one)
    np.testing.assert_allclose(jittered, images, atol=1e-5)


@pytest.mark.parametrize(
    "operation",
    [
        lambda images, one: colour.brightness(images, one),
        lambda images, one: colour.contrast(images, one),
        lambda images, one: colour.saturation(images, one),
        lambda images, one: colour.hue(images, one),
        lambda images, one: colour.grayscale(images, one > 0),
        lambda images, one: colour.jitter(images, tf.ones([2, 4]), tf.constant([0, 1])),
        lambda images, one: colour.linear_jitter(images, one, one, one > 0, one, one),
    ],
    ids=["brightness", "contrast", "saturation", "hue", "grayscale", "jitter", "linear_jitter"],
)
def test_images_of_one_channel_are_refused(operation):
    with pytest.raises(ValueError, match="need images with 3 channels, got shape"):
        operation(tf.zeros([2, 5, 3, 1]), tf.ones([2]))
