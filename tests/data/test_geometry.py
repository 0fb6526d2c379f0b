"""Boxes against the ranges they promise; resampling against PIL; warping against SciPy."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scipy import ndimage

from selabel_tf.data import geometry

ONE_LEVEL = 1.01  # PIL rounds to whole levels after the horizontal and again after the vertical pass


def random_images(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def pil_resample(image, box, size):
    top, left, height, width = (float(number) for number in box)
    corners = (left, top, left + width, top + height)
    return np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR, box=corners))


def boxes_of(count, image_size, area_range=(0.08, 1.0), seed=0):
    uniform = np.random.default_rng(seed).random((4, count)).astype(np.float32)
    size = tf.constant(image_size, tf.float32)
    return uniform, geometry.random_boxes(size, *uniform, area_range=area_range).numpy()


@pytest.mark.parametrize(
    ("size", "box"),
    [
        ((7, 5), (0.0, 0.0, 53.0, 41.0)),
        ((7, 5), (3.3, 1.6, 40.2, 31.9)),
        ((61, 59), (3.3, 1.6, 40.2, 31.9)),
        ((61, 59), (0.0, 30.0, 9.5, 11.0)),
        ((61, 11), (2.25, 0.5, 17.0, 40.0)),
    ],
    ids=["shrink all", "shrink a part", "enlarge a part", "enlarge a corner", "taller and narrower"],
)
def test_a_resampled_box_agrees_with_pil(size, box):
    images = random_images(2, 53, 41, 3)
    resampled = geometry.resample(tf.constant(images), tf.constant(box), size).numpy()
    assert resampled.shape == (2, *size, 3)
    for image, result in zip(images, resampled, strict=True):
        assert np.abs(result - pil_resample(image, box, size)).max() <= ONE_LEVEL


@pytest.mark.parametrize("size", [(17, 19), (7, 5)], ids=["enlarged", "shrunk"])
def test_every_image_gets_its_own_box_and_its_own_flip_as_pil_would_do_it(size):
    images = random_images(11, 17, 13, 3)
    _, boxes = boxes_of(11, (17, 13))
    flips = np.arange(11) % 3 == 0
    resampled = geometry.resample_each(tf.constant(images), tf.constant(boxes), tf.constant(flips), size).numpy()
    for image, box, flip, result in zip(images, boxes, flips, resampled, strict=True):
        expected = pil_resample(image, box, size)
        assert np.abs(result - (expected[:, ::-1] if flip else expected)).max() <= ONE_LEVEL


def test_images_of_unknown_size_come_out_as_in_the_batched_way():
    images = random_images(7, 13, 11, 3)
    _, boxes = boxes_of(7, (13, 11))
    flips = np.arange(7) % 2 == 0
    size = (17, 13)

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8)])
    def one_by_one(images):
        resampled = geometry.resample_each(images, tf.constant(boxes), tf.constant(flips), size)
        assert resampled.shape.as_list()[1:] == [*size, 3]  # known while tracing
        return resampled

    batched = geometry.resample_each(tf.constant(images), tf.constant(boxes), tf.constant(flips), size)
    np.testing.assert_allclose(one_by_one(tf.constant(images)), batched, atol=0.02)  # of 255 levels


def test_the_whole_box_at_the_same_size_is_the_image_itself():
    images = random_images(3, 13, 11, 1)
    box = geometry.whole_box(tf.constant([13.0, 11.0]))
    np.testing.assert_allclose(geometry.resample(tf.constant(images), box, (13, 11)), images, atol=0.01)
    each = geometry.resample_each(tf.constant(images), tf.stack([box] * 3), tf.constant([False, True, False]), (13, 11))
    np.testing.assert_allclose(each[0], images[0], atol=0.01)
    np.testing.assert_allclose(each[1], images[1][:, ::-1], atol=0.01)


@pytest.mark.parametrize(
    ("image_size", "size", "box"),
    [
        ((256, 256), (224, 224), (16, 16, 224, 224)),
        ((256, 512), (224, 224), (16, 144, 224, 224)),
        ((768, 512), (224, 224), (160, 32, 448, 448)),
        ((64, 32), (32, 16), (4, 2, 56, 28)),
    ],
)
def test_the_centre_box_is_the_recipes_resize_and_centre_crop(image_size, size, box):
    np.testing.assert_allclose(
        geometry.centre_box(tf.constant(image_size, tf.float32), size), np.float32(box), rtol=1e-5
    )


@pytest.mark.parametrize("area_range", [(0.08, 1.0), (0.2, 1.0)])
def test_random_crops_cover_the_stated_range_of_area_and_aspect(area_range):
    low, high = area_range
    (area, aspect, _, _), boxes = boxes_of(20_011, (32, 32), area_range)
    share, ratio = boxes[:, 2] * boxes[:, 3] / 32**2, boxes[:, 3] / boxes[:, 2]
    assert low - 1e-5 <= share.min() < low + 0.01 and high - 0.01 < share.max() <= high + 1e-5
    assert 3 / 4 - 1e-5 <= ratio.min() < 0.76 and 1.32 < ratio.max() <= 4 / 3 + 1e-5
    # A share below 3/4 fits into a square at any allowed aspect: nothing is clamped and both laws are exact.
    free = low + (high - low) * area < 0.75
    np.testing.assert_allclose(share[free], (low + (high - low) * area)[free], rtol=1e-4)
    np.testing.assert_allclose(np.log(ratio[free]), (np.log(3 / 4) + 2 * np.log(4 / 3) * aspect)[free], atol=1e-4)


@pytest.mark.parametrize("image_size", [(32, 32), (37, 53), (29, 149), (149, 29)])
def test_random_crops_lie_inside_the_image_and_reach_every_side(image_size):
    _, boxes = boxes_of(5_003, image_size)
    start, end = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    ratio = boxes[:, 3] / boxes[:, 2]
    assert start.min() >= 0 and (end <= np.array(image_size) * (1 + 1e-5)).all()
    assert (start.min(0) < 0.1).all() and (end.max(0) > np.array(image_size) - 0.1).all()
    assert ratio.min() >= 3 / 4 - 1e-5 and ratio.max() <= 4 / 3 + 1e-5


def test_each_number_of_a_crop_does_its_own_thing():
    def box(**changes):
        numbers = {"area": 0.3, "aspect": 0.5, "top": 0.5, "left": 0.5} | changes
        tensors = {name: tf.constant([value]) for name, value in numbers.items()}
        return geometry.random_boxes(tf.constant([41.0, 41.0]), **tensors, area_range=(0.2, 1.0)).numpy()[0]

    middle = box()
    np.testing.assert_allclose(middle[2:], 41 * np.sqrt(0.44), rtol=1e-5)
    np.testing.assert_allclose(middle[:2], (41 - middle[2:]) / 2, rtol=1e-5)
    assert box(top=0.0)[0] == 0 and (box(top=0.0)[1:] == middle[1:]).all()
    assert box(left=0.0)[1] == 0 and (box(left=0.0)[[0, 2, 3]] == middle[[0, 2, 3]]).all()
    assert (box(area=0.6)[2:] > middle[2:]).all()
    assert box(aspect=0.9)[3] > middle[3] and box(aspect=0.9)[2] < middle[2]


def test_a_warp_agrees_with_scipys_affine_transform():
    rng = np.random.default_rng(3)
    images = rng.random((5, 17, 13, 1)).astype(np.float32)
    angle, shear = rng.uniform(-0.5, 0.5, 5), rng.uniform(-0.2, 0.2, 5)
    zoom, shift = rng.uniform(0.7, 1.4, 5), rng.uniform(-0.2, 0.2, (5, 2))
    warped = geometry.warp(
        tf.constant(images), *(tf.constant(numbers, tf.float32) for numbers in (angle, zoom, shear, shift))
    ).numpy()
    centre = np.array([8.0, 6.0])  # row, column
    for i in range(5):
        turn = np.array([[np.cos(angle[i]), np.sin(angle[i])], [-np.sin(angle[i]), np.cos(angle[i])]])
        matrix = turn @ np.array([[1, 0], [shear[i], 1]]) / zoom[i]  # on (row, column): the x/y matrix reversed
        offset = centre - matrix @ (centre + shift[i] * [17, 13])
        expected = ndimage.affine_transform(
            images[i, ..., 0].astype(np.float64), matrix, offset, order=1, mode="grid-constant"
        )
        np.testing.assert_allclose(warped[i, ..., 0], expected, atol=1e-4)


def test_a_warp_turns_counter_clockwise_and_shifts_down_and_right():
    image = np.zeros((1, 11, 11, 1), np.float32)
    image[0, 2, 5] = 1  # above the centre

    def warp(angle=0.0, zoom=1.0, shift=(0.0, 0.0)):
        numbers = ([angle], [zoom], [0.0], [shift])
        warped = geometry.warp(tf.constant(image), *(tf.constant(number, tf.float32) for number in numbers))
        return warped.numpy()[0, ..., 0]

    np.testing.assert_allclose(warp(), image[0, ..., 0], atol=1e-5)
    np.testing.assert_allclose(warp(angle=np.pi / 2), np.rot90(image[0, ..., 0]), atol=1e-5)
    assert np.argwhere(warp(shift=(3 / 11, 2 / 11)) > 0.99).tolist() == [[5, 7]]
    assert np.argwhere(warp(zoom=1 / 3) > 0.99).tolist() == [[4, 5]]
    assert np.abs(warp(shift=(-5 / 11, 0.0))).max() < 1e-5  # moved out of sight, black moved in


def test_the_five_windows_are_those_of_an_image_with_its_shorter_side_at_256():
    boxes = geometry.corner_and_centre_boxes(tf.constant([256.0, 320.0]), (224, 224)).numpy()
    starts = [(0, 0), (0, 96), (32, 0), (32, 96), (16, 48)]
    np.testing.assert_allclose(boxes, [(*start, 224, 224) for start in starts], rtol=1e-5)


def test_a_random_window_lies_anywhere_in_such_an_image():
    top, left = tf.constant([0.0, 0.5, 1.0]), tf.constant([0.0, 0.25, 1.0])
    boxes = geometry.window_boxes(tf.constant([512.0, 640.0]), (224, 224), top, left).numpy()
    np.testing.assert_allclose(boxes[:, :2], [(0, 0), (32, 48), (64, 192)], rtol=1e-5)
    np.testing.assert_allclose(boxes[:, 2:], 448, rtol=1e-5)
