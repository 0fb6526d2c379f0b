"""Small crops beside the usual one, on images that say where each of their pixels lies."""

import numpy as np
import pytest
from PIL import Image

from selabel_tf.data import from_arrays, from_folder

SIDE = 64
PLACES = np.stack([*np.meshgrid(*2 * [(np.arange(SIDE) + 0.5) / SIDE]), np.full((SIDE, SIDE), 0.5)], axis=-1)
IMAGES = np.repeat(PLACES[None].astype(np.float32), 40, axis=0)  # [40, 64, 64, 3]: x, y and a constant


def source(policy="crop_flip", **options):
    return from_arrays(IMAGES).augmented(policy, 32, **options)


def epoch_of(images, batch_size=16, **options):
    """Large and small crops in index order."""
    parts = [
        (large.numpy(), small.numpy(), index.numpy()) for (large, small), index in images.train_batches(batch_size)
    ]
    large, small, index = (np.concatenate(column) for column in zip(*parts, strict=True))
    return large[np.argsort(index)], small[np.argsort(index)]


def shown_area(crops):
    """The share of the image that crops [..., s, s, 3] show, to a pixel."""
    size = crops.shape[-2]
    sides = [np.ptp(crops[..., channel], axis=(-2, -1)) * size / (size - 1) for channel in (0, 1)]
    return sides[0] * sides[1]


def test_small_crops_show_their_share_of_the_image_and_each_another_one():
    large, small = epoch_of(source().with_small_crops(3, 16, (0.1, 0.2)))
    assert large.shape == (40, 32, 32, 3) and small.shape == (40, 3, 16, 16, 3)
    assert 0.08 < shown_area(small).min() < 0.12 and 0.18 < shown_area(small).max() < 0.22
    assert shown_area(large).max() > 0.8  # the policy's own range
    middles = small[:, :, 7:9, 7:9, :2].mean(axis=(2, 3)).reshape(-1, 2)
    assert len(np.unique(middles.round(4), axis=0)) == len(middles)


def test_they_are_normalised_as_the_others_are():
    large, small = epoch_of(source(mean=(0.0, 0.0, 0.25), std=(1.0, 1.0, 0.125)).with_small_crops(2, 16))
    np.testing.assert_allclose(small[..., 2], 2.0, rtol=1e-5)
    np.testing.assert_allclose(large[..., 2], 2.0, rtol=1e-5)


def test_an_image_shows_the_same_crops_in_any_batch_and_others_in_the_next_epoch():
    images = source("cifar_cpu").with_small_crops(2, 16)
    once, again = epoch_of(images, 16), epoch_of(images, 16)
    assert np.abs(once[1] - again[1]).mean() > 0.01
    images.next_epoch = 0
    for one, other in zip(once, epoch_of(images, 7), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_label_passes_and_evaluation_see_no_small_crops():
    images = source().with_small_crops(2, 16)
    for batches in (images.view_batches(8, position=0), images.plain_batches(8)):
        assert batches.element_spec[0].shape[1:] == (32, 32, 3)
    assert images.augmented("flip", 32).train_batches(8).element_spec[0].shape[1:] == (32, 32, 3)
    assert images.subset(range(5)).train_batches(8).element_spec[0][1].shape[1:] == (2, 16, 16, 3)


def test_images_of_differing_sizes_have_small_crops_too(tmp_path):
    for number, side in enumerate((40, 64, 50)):
        Image.fromarray(np.uint8(255 * PLACES)).resize((side, side)).save(tmp_path / f"{number}.png")
    large, small = epoch_of(from_folder(tmp_path).augmented("crop_flip", 32).with_small_crops(2, 16, (0.3, 0.3)), 2)
    assert large.shape == (3, 32, 32, 3)
    np.testing.assert_allclose(shown_area(small), 0.3, atol=0.05)


@pytest.mark.parametrize(
    "policy, arguments, message",
    [
        (
            "flip",
            (2, 16),
            "Small crops need an augmentation policy that crops, and 'flip' does not. Such do: random_res",
        ),
        ("crop_flip", (0, 16), "count must be at least 1"),
        ("crop_flip", (2, 0), "size must be at least 1"),
        ("crop_flip", (2, 16, (0.5, 0.2)), "area=.* expected .smallest, largest. share"),
        ("crop_flip", (2, 16, (0.0, 0.2)), "area=.* expected .smallest, largest. share"),
    ],
)
def test_what_cannot_be_is_refused(policy, arguments, message):
    with pytest.raises(ValueError, match=message):
        source(policy).with_small_crops(*arguments)
