import io

import numpy as np
import pytest
from PIL import Image

from selabel_tf.evaluation import sprites


def counts(labels, rows):
    return [np.bincount(column[rows], minlength=column.max() + 1) for column in labels.T]


def balanced(count, num_clusters):
    generator = np.random.default_rng(3)
    return np.stack([generator.permutation(count) % k for k in num_clusters], axis=1)


def test_a_small_set_is_shown_whole_in_random_order():
    rows = sprites.choose(balanced(97, (5, 7)), most=97)
    assert sorted(rows) == list(range(97)) and list(rows) != list(range(97))
    np.testing.assert_array_equal(rows, sprites.choose(balanced(97, (5, 7)), most=97))


def test_every_cluster_of_every_head_is_shown_and_the_bound_is_kept():
    labels = balanced(5_003, (31, 37, 41))
    rows = sprites.choose(labels, most=503)
    assert len(rows) == len(set(rows)) == 503
    assert min(column.min() for column in counts(labels, rows)) >= 5


def test_where_room_is_scarce_no_cluster_gets_a_second_image_before_all_have_one():
    labels = balanced(4_001, (331, 337))
    rows = sprites.choose(labels, most=600)
    assert np.mean(np.concatenate(counts(labels, rows)) == 0) < 0.01  # at random it would be one in six
    assert len(sprites.choose(labels, most=113)) == 113


def test_a_rare_cluster_is_not_lost():
    labels = np.zeros((7_001, 1), int)
    labels[[17, 4_000], 0] = 1
    assert set(sprites.choose(labels, most=101)) >= {17, 4_000}


@pytest.mark.parametrize(
    ("shape", "side"), [((16, 16), 16), ((28, 28), 32), ((32, 40), 32), ((224, 224), 48), ((5, 5), 16)]
)
def test_tiles_are_whole_blocks_of_jpeg(shape, side):
    assert sprites.tile_size(*shape) == side


def test_tiles_keep_the_picture():
    images = np.random.default_rng(0).random((3, 32, 32, 3))
    np.testing.assert_allclose(sprites.tiles(images, 32), 255 * images, atol=0.51)
    whole = sprites.tiles((255 * images).astype(np.uint8), 16)
    np.testing.assert_allclose(whole.mean(axis=(1, 2)), 255 * images.mean(axis=(1, 2)), atol=3)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_tile_is_at_its_place_and_does_not_colour_its_neighbours(channels):
    tiles = np.random.default_rng(1).integers(256, size=(1_031, 1, 1, channels), dtype=np.uint8)
    tiles = np.broadcast_to(tiles, (1_031, 16, 16, channels))
    first, second = [
        np.asarray(Image.open(io.BytesIO(sheet)).convert("RGB")).astype(int) for sheet in sprites.sheets(tiles)
    ]
    assert first.shape == (512, 512, 3) and second.shape == (16, 7 * 16, 3)
    for place in (0, 31, 32, 500, 1_023, 1_024, 1_030):
        sheet, inside = (first, place) if place < 1_024 else (second, place - 1_024)
        across = sheet.shape[1] // 16
        top, left = 16 * (inside // across), 16 * (inside % across)
        cell = sheet[top : top + 16, left : left + 16]
        np.testing.assert_allclose(cell, np.broadcast_to(tiles[place], (16, 16, 3)), atol=8)
