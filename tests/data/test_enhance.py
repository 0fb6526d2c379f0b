"""Equalize, autocontrast and sharpness beside Pillow, image by image."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from selabel_tf.data import augment, enhance, from_arrays

# Dull images: every channel of every image has a range of its own within 0..255
GENERATOR = np.random.default_rng(0)
LOW, WIDTH = GENERATOR.integers(0, 60, (7, 1, 1, 3)), GENERATOR.integers(80, 190, (7, 1, 1, 3))
IMAGES = (LOW + WIDTH * GENERATOR.random((7, 19, 13, 3)) ** 2).astype(np.uint8)
UNIT = tf.constant(IMAGES, tf.float32) / 255


def by_pillow(change, images=IMAGES):
    return np.stack([np.asarray(change(Image.fromarray(image)), np.float32) for image in images])


def test_autocontrast_is_pillows_to_one_value():
    assert np.abs(255 * enhance.autocontrast(UNIT) - by_pillow(ImageOps.autocontrast)).max() < 1.001


def test_equalize_differs_from_pillow_by_how_its_table_is_rounded():
    found, pillow = 255 * np.asarray(enhance.equalize(UNIT)), by_pillow(ImageOps.equalize)
    # 247 pixels, 255 values: Pillow's whole-number step (pixels - last) // 255 is 0, and it leaves such images alone
    np.testing.assert_array_equal(pillow, IMAGES)
    large = np.repeat(np.repeat(IMAGES, 12, axis=1), 12, axis=2)  # a step of 139: the rounding hardly counts
    pillow = by_pillow(ImageOps.equalize, large)
    found = 255 * np.asarray(enhance.equalize(tf.constant(large, tf.float32) / 255))
    # Pillow gives a value the share of pixels below it, Keras that of pixels up to it: apart by the value's own
    counts = [np.bincount(channel.ravel(), minlength=256).max() for channel in np.moveaxis(large, 3, 1).reshape(21, -1)]
    most = max(counts) / large[0, :, :, 0].size
    assert np.abs(found - pillow).max() <= 255 * most + 2
    assert np.corrcoef(found.ravel(), pillow.ravel())[0, 1] > 0.99


def test_equalize_follows_the_cumulative_histogram():
    found = np.asarray(enhance.equalize(UNIT))
    for image, changed in zip(IMAGES, found, strict=True):
        for channel in range(3):
            values = image[..., channel]
            cdf = np.cumsum(np.bincount(values.ravel(), minlength=256))
            lowest = cdf[values.min()]
            expected = np.round((cdf - lowest) * 255 / (cdf[-1] - lowest))[values] / 255
            np.testing.assert_allclose(changed[..., channel], expected, atol=1e-6)


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.7])
def test_sharpness_is_pillows_to_one_value(factor):
    found = 255 * np.asarray(enhance.sharpness(UNIT, tf.fill([7], factor)))
    assert (
        np.abs(found - by_pillow(lambda image: ImageEnhance.Sharpness(image).enhance(factor))).max()
        <= 1.01 + abs(1 - factor) / 2
    )
    np.testing.assert_allclose(found[:, 0], IMAGES[:, 0], atol=1e-3)  # edges stay, as in Pillow


def test_an_image_of_one_value_stays_finite():
    flat = tf.fill([2, 5, 3, 3], 0.25)
    for changed in (enhance.equalize(flat), enhance.autocontrast(flat), enhance.sharpness(flat, tf.ones([2]))):
        np.testing.assert_allclose(changed, flat, atol=1e-6)


def test_one_of_deals_every_image_to_its_own_operation():
    choice, factor = tf.constant([2, 0, 1, 1, 2, 0, 0]), tf.linspace(1.0, 2.0, 7)
    found = enhance.one_of(UNIT, choice, factor)
    each = [enhance.equalize(UNIT), enhance.autocontrast(UNIT), enhance.sharpness(UNIT, factor)]
    for row, which in enumerate(choice.numpy()):
        np.testing.assert_allclose(found[row], each[which][row], atol=1e-6)
    for row in (0, 1, 2):  # alone, where the others are chosen by none
        alone = enhance.one_of(UNIT[row : row + 1], choice[row : row + 1], factor[row : row + 1])
        np.testing.assert_allclose(alone[0], found[row], atol=1e-6)


@pytest.mark.parametrize("policy", sorted(augment.POLICIES))
def test_more_comes_on_top_of_every_policy(policy):
    plain = augment.make(policy, (19, 13, 3), size=17)
    more = augment.make(policy, (19, 13, 3), size=17, more="one_of")
    assert more.num_factors == plain.num_factors + 2
    factors = np.random.default_rng(1).random((7, more.num_factors), np.float32)
    usual = plain(IMAGES, factors[:, :-2])
    expected = enhance.one_of(usual, tf.cast(3 * factors[:, -2], tf.int32), 1 + factors[:, -1])
    np.testing.assert_allclose(more(IMAGES, factors), expected, atol=1e-5)
    np.testing.assert_array_equal(more.plain(IMAGES), plain.plain(IMAGES))  # evaluation knows nothing of it


def test_images_of_one_channel_take_it_too():
    more = augment.make("digits", (19, 13, 1), more="one_of")
    assert more(IMAGES[..., :1], np.full((7, more.num_factors), 0.1, np.float32)).shape == (7, 19, 13, 1)


def test_an_epoch_is_replayed_and_another_one_is_not():
    source = from_arrays(IMAGES).augmented("flip", more="one_of")

    def epoch(number, batch_size):
        source.next_epoch = number
        batches = list(source.train_batches(batch_size, seed=3).as_numpy_iterator())
        return np.concatenate([images for images, _ in batches])[np.argsort(np.concatenate([i for _, i in batches]))]

    np.testing.assert_allclose(epoch(0, 7), epoch(0, 3), atol=1e-6)  # whatever batch an image is in
    assert np.abs(epoch(0, 7) - epoch(1, 7)).max() > 0.1


def test_an_unknown_addition_is_refused():
    with pytest.raises(ValueError, match=r"Unknown augmentation more='all'\. Available: none, one_of"):
        augment.make("none", (19, 13, 3), more="all")
