"""Preparing images inside the serving graph, as evaluation prepares them."""

import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from selabel_tf.data import from_folder
from selabel_tf.data.augment import POLICIES
from selabel_tf.export.preprocessing import Preprocessing

MEAN, STD = (0.41, 0.37, 0.29), (0.23, 0.31, 0.19)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven files of differing sizes: large, small, gray, upright, and one of just the network's size."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    sizes = [(61, 47), (29, 83), (7, 5), (19, 19), (101, 103), (19, 53)]
    for number, (height, width) in enumerate(sizes):
        coarse = rng.integers(0, 256, (5, 5, 3), np.uint8)
        image = PIL.Image.fromarray(coarse).resize((width, height), PIL.Image.BICUBIC)
        image.save(folder / f"{number}.{'jpg' if number % 2 else 'png'}")
    PIL.Image.fromarray(rng.integers(0, 256, (31, 37), np.uint8)).save(folder / "gray.png")
    return folder


def encoded(folder):
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def evaluation_images(folder, policy, size=19):
    source = from_folder(folder).augmented(policy, size, mean=MEAN, std=STD)
    return np.concatenate([images.numpy() for images, _ in source.plain_batches(3)])


@pytest.mark.parametrize("policy", POLICIES)
def test_bytes_become_the_images_that_evaluation_sees(folder, policy):
    made = Preprocessing((19, 19, 3), POLICIES[policy].plain, MEAN, STD)
    ours = tf.function(made.of_bytes)(tf.constant(encoded(folder)))
    np.testing.assert_allclose(ours, evaluation_images(folder, policy), atol=1e-5)  # of values up to 4


def test_files_of_one_size_are_left_as_they_are(tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (5, 13, 13, 3), np.uint8)
    for number, image in enumerate(pixels):
        PIL.Image.fromarray(image).save(tmp_path / f"{number}.png")
    ours = Preprocessing((13, 13, 3)).of_bytes(tf.constant(encoded(tmp_path)))
    np.testing.assert_array_equal(ours, pixels.astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(ours, next(iter(from_folder(tmp_path).plain_batches(5)))[0])


@pytest.mark.parametrize("region", ["whole", "centre"])
def test_the_facts_are_enough_for_a_client_with_nothing_but_pil(folder, region):
    facts = json.loads(json.dumps(Preprocessing((17, 23, 3), region, MEAN, STD).facts()))
    height, width, _ = facts["image_shape"]
    by_pil = []
    files = sorted(folder.glob("*.png"))  # decoders of JPEG differ by a few gray levels
    for path in files:
        image = PIL.Image.open(path).convert("RGB")
        box = (0, 0, *image.size)
        if facts["region"] == "centre":
            share = min(image.width / width, image.height / height) * facts["centre_share"]
            left, top = (image.width - width * share) / 2, (image.height - height * share) / 2
            box = (left, top, left + width * share, top + height * share)
        pixels = np.asarray(image.resize((width, height), PIL.Image.BILINEAR, box=box), np.float64)
        by_pil.append((pixels * facts["scale"] - facts["mean"]) / facts["std"])
    ours = Preprocessing.from_facts(facts).of_bytes(tf.constant([path.read_bytes() for path in files]))
    np.testing.assert_allclose(ours, by_pil, atol=1.6 / 255 / min(STD))  # PIL rounds to 8 bits after each axis


def test_one_channel_is_decoded_as_gray(folder):
    ours = Preprocessing((19, 19, 1)).of_bytes(tf.constant([(folder / "gray.png").read_bytes()]))
    assert ours.shape == (1, 19, 19, 1)


def test_bytes_of_no_image_are_named_by_their_place(folder):
    good = (folder / "0.png").read_bytes()
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not begin like one") as caught:
        tf.function(Preprocessing((19, 19, 3)).of_bytes)(tf.constant([good, b"/photos/a.png", good, b""]))
    assert "[1 3]" in caught.value.message


def test_a_damaged_image_is_an_error(folder):
    with pytest.raises(tf.errors.InvalidArgumentError, match="PNG"):
        Preprocessing((19, 19, 3)).of_bytes(tf.constant([(folder / "0.png").read_bytes()[:99]]))


def test_facts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"region='middle' is unknown. Available: whole, centre."):
        Preprocessing((19, 19, 3), "middle")
    with pytest.raises(ValueError, match="mean has 3 values and std 3, the images have 1 channels"):
        Preprocessing((19, 19, 1), "whole", MEAN, STD)


def test_facts_survive_their_json():
    made = Preprocessing((19, 23, 3), "centre", MEAN, STD)
    assert Preprocessing.from_facts(json.loads(json.dumps(made.facts()))) == made
    assert keras.tree.map_structure(type, made.facts())["mean"] == [float] * 3
