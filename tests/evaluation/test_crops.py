"""Ten crops of an image, and the average of what a classifier says to them, against crops made by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from selabel_tf.data import from_arrays, from_folder
from selabel_tf.evaluation import crops, pooled_layers, probes

RNG = np.random.default_rng(0)
# Shorter side 32 = 28 * 256/224: the windows are pixels of the image themselves
WIDE = RNG.integers(0, 256, (7, 32, 40, 3), dtype=np.uint8)
MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)


def ten_by_hand(image, size=28):
    """[10, size, size, c] of one image with its shorter side at 256/224 of `size`; not normalised."""
    down, right = image.shape[0] - size, image.shape[1] - size
    starts = [(0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2)]
    five = [image[top : top + size, left : left + size] for top, left in starts]
    return np.stack(five + [one[:, ::-1] for one in five]).astype(np.float32) / 255


def test_the_ten_crops_of_a_source_are_four_corners_and_the_centre_and_their_mirror_images():
    source = from_arrays(WIDE).augmented("crop_flip", 28, mean=MEAN, std=STD)
    shown = np.concatenate([images for images, _ in source.ten_crop_batches(3)])
    expected = np.stack([ten_by_hand(image) for image in WIDE])
    assert shown.shape == (7, 10, 28, 28, 3)
    np.testing.assert_allclose(shown, (expected - np.float32(MEAN)) / np.float32(STD), atol=1e-4)


def test_images_of_differing_sizes_are_cropped_each_in_its_own_size(tmp_path):
    tall = RNG.integers(0, 256, (36, 32, 3), dtype=np.uint8)
    for name, image in (("a", tall), ("b", WIDE[0])):
        keras.utils.save_img(tmp_path / f"{name}.png", image, scale=False)
    source = from_folder(tmp_path).augmented("none", 28)
    ((images, index),) = source.ten_crop_batches(2)
    np.testing.assert_array_equal(index, [0, 1])
    np.testing.assert_allclose(images, np.stack([ten_by_hand(tall), ten_by_hand(WIDE[0])]), atol=1e-4)


def test_scores_are_averaged_over_the_crops_of_each_image():
    given = RNG.normal(size=(3, 5, 4, 2, 1)).astype(np.float32)
    kernel = RNG.normal(size=(8, 11)).astype(np.float32)

    def forward(images):
        return {"a": tf.reshape(images, (-1, 8)) @ kernel, "b": tf.reshape(images, (-1, 8)) ** 3}

    scores = tf.function(crops.averaged(forward), input_signature=[tf.TensorSpec([None, None, 4, 2, 1])])(given)
    flat = given.reshape(3, 5, 8)
    np.testing.assert_allclose(scores["a"], (flat @ kernel).mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(scores["b"], (flat**3).mean(axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 10])
def test_top_1_and_top_5_are_those_of_the_averaged_scores(count):
    inputs = keras.Input((28, 28, 3))
    trunk = keras.Model(inputs, layers.AveragePooling2D(7, name="mean")(inputs))
    linear = probes.Probes(pooled_layers.of_layers(trunk, ["mean"]), num_classes=11)
    kernel, bias = RNG.normal(size=(48, 11)).astype(np.float32), RNG.normal(size=11).astype(np.float32)
    linear.heads.get_layer("mean").set_weights([kernel, bias])
    classes = RNG.integers(0, 11, 7)
    source = from_arrays(WIDE, classes).augmented("crop_flip", 28)

    ten = np.stack([ten_by_hand(image) for image in WIDE])  # [7, 10, 28, 28, 3]
    seen = ten[:, 4:5] if count == 1 else ten  # the centre alone
    pooled = seen.reshape(*seen.shape[:2], 4, 7, 4, 7, 3).mean(axis=(3, 5)).reshape(7, count, 48)
    scores = (pooled / np.sqrt(1 + 1e-5) @ kernel + bias).mean(axis=1)  # BatchNorm as it starts: mean 0, variance 1
    rank = (-scores).argsort(axis=1)
    (row,) = probes.evaluate(linear, source, crops=count, batch_size=30)
    assert row["top1"] == pytest.approx(np.mean(rank[:, 0] == classes))
    assert row["top5"] == pytest.approx(np.mean((rank[:, :5] == classes[:, None]).any(axis=1)))
    assert 0 < row["top5"] < 1  # else this shows nothing


def test_another_number_of_crops_is_refused():
    inputs = keras.Input((5,))
    trunk = keras.Model(inputs, layers.Identity(name="same")(inputs))
    linear = probes.Probes(pooled_layers.of_layers(trunk, ["same"]), num_classes=3)
    with pytest.raises(ValueError, match=r"crops=5 is not known\. Choose 1 .* or 10"):
        probes.evaluate(linear, None, crops=5)
