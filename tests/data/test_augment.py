"""Policies: which numbers they spend on what, and that pixels depend on an image and its own numbers only."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from selabel_tf.data import augment

COLOUR_POLICIES = ["crop_jitter", "crop_jitter_cifar", "cifar_cpu"]
NUM_FACTORS = {
    "none": 0,
    "centre_crop": 0,
    "flip": 1,
    "random_resized_crop": 4,
    "crop_flip": 5,
    "window_flip": 3,
    "crop_flip_noise": 7,
    "crop_jitter": 11,
    "crop_jitter_cifar": 11,
    "cifar_cpu": 10,
    "digits": 5,
}


def smooth_images(count, height=13, width=11, channels=3, seed=0):
    """Random pictures without flat parts, uint8."""
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 5, 4, channels), dtype=np.uint8)
    fine = tf.image.resize(coarse, [height, width], method="bicubic")
    return np.clip(fine, 0, 255).astype(np.uint8)


def random_factors(augmentation, count, seed=0):
    table = np.random.default_rng(seed).random((count, augmentation.num_factors))
    return np.minimum(table.astype(np.float32), np.float32(1 - 2**-24))


def column(augmentation, name):
    return augmentation.policy.columns.index(name)


def test_every_policy_spends_the_stated_number_of_random_numbers():
    made = {name: augment.make(name, (13, 11, 3)) for name in augment.POLICIES}
    assert {name: augmentation.num_factors for name, augmentation in made.items()} == NUM_FACTORS
    for augmentation in made.values():
        assert len(set(augmentation.policy.columns)) == augmentation.num_factors


@pytest.mark.parametrize("name", augment.POLICIES)
def test_every_column_changes_the_picture_and_each_in_its_own_way(name):
    augmentation = augment.make(name, (13, 11, 3))
    columns = augmentation.policy.columns
    middle = np.full([len(columns)], 0.57, np.float32)  # every operation does something, so their order matters
    rows = [middle]
    for i in range(len(columns)):
        rows.append(middle.copy())
        rows[-1][i] = 0.11  # below the probabilities of gray and of flips
    pictures = augmentation(np.repeat(smooth_images(1), len(rows), axis=0), np.stack(rows)).numpy()
    apart = np.abs(pictures[:, None] - pictures[None]).max((2, 3, 4))
    assert (apart + np.eye(len(rows)) > 1e-3).all()


@pytest.mark.parametrize("name", augment.POLICIES)
def test_pixels_depend_on_the_image_and_its_numbers_whatever_the_batch(name):
    augmentation = augment.make(name, (13, 11, 3), size=17)
    images, factors = smooth_images(7), random_factors(augmentation, 7)
    together = augmentation(images, factors).numpy()
    assert together.shape == (7, 17, 17, 3) and together.dtype == np.float32
    order = [4, 0, 6, 2]
    np.testing.assert_allclose(augmentation(images[order], factors[order]), together[order], atol=1e-5)
    np.testing.assert_allclose(augmentation(images[3:4], factors[3:4]), together[3:4], atol=1e-5)


@pytest.mark.parametrize("name", [name for name, count in NUM_FACTORS.items() if count])
def test_copies_of_one_image_in_a_batch_look_different(name):
    augmentation = augment.make(name, (13, 11, 3))
    factors = random_factors(augmentation, 5, seed=2)
    factors[:2, 0] = 0.2, 0.8  # for the flip alone, two draws may agree
    pictures = augmentation(np.repeat(smooth_images(1), 5, axis=0), factors).numpy()
    assert np.abs(pictures[0] - pictures[1]).max() > 1e-2


@pytest.mark.parametrize(
    ("name", "size"), [*((name, 17) for name in augment.POLICIES), ("crop_flip", 7), ("centre_crop", 7)]
)
def test_bytes_and_floats_and_images_of_unknown_size_agree(name, size):
    known = augment.make(name, (13, 11, 3), size=size)
    unknown = augment.make(name, (None, None, 3), size=size)
    assert known.image_shape == unknown.image_shape == (size, size, 3)
    images, factors = smooth_images(5), random_factors(known, 5)
    expected = known(images, factors).numpy()
    np.testing.assert_allclose(known(images.astype(np.float32) / 255, factors), expected, atol=1e-4)

    @tf.function(
        input_signature=[
            tf.TensorSpec([1, None, None, 3], tf.uint8),
            tf.TensorSpec([1, known.num_factors], tf.float32),
        ]
    )
    def crop_one(image, factors):
        cropped = unknown.crop(image, factors)
        assert cropped.shape == (1, size, size, 3)  # known while tracing
        return cropped

    cropped = [crop_one(images[i : i + 1], factors[i : i + 1]) for i in range(5)]
    np.testing.assert_allclose(unknown.finish(tf.concat(cropped, 0), factors), expected, atol=2e-3)


@pytest.mark.parametrize("name", augment.POLICIES)
def test_values_stay_between_zero_and_one_before_normalisation_and_in_shape_when_traced(name):
    augmentation = augment.make(name, (13, 11, 3))
    signature = [
        tf.TensorSpec([None, 13, 11, 3], tf.uint8),
        tf.TensorSpec([None, augmentation.num_factors], tf.float32),
    ]
    traced = tf.function(augmentation.__call__, input_signature=signature)
    assert traced.get_concrete_function().structured_outputs.shape.as_list() == [None, 13, 11, 3]
    images, factors = smooth_images(19), random_factors(augmentation, 19)
    pictures = traced(images, factors).numpy()
    assert pictures.min() >= -1e-6 and pictures.max() <= 1 + 1e-6
    np.testing.assert_allclose(pictures, augmentation(images, factors), atol=1e-5)


@pytest.mark.parametrize(("name", "low"), [("crop_jitter", 0.08), ("crop_jitter_cifar", 0.2), ("cifar_cpu", 0.2)])
def test_recipes_crop_from_their_own_smallest_area(name, low):
    # On a ramp from left to right, the range of values in a crop is its width.
    ramp = np.tile(np.linspace(0, 1, 101, dtype=np.float32)[None, None, :, None], (1, 101, 1, 3))
    augmentation = augment.make(name, (101, 101, 3))
    factors = np.full([1, augmentation.num_factors], 0.5, np.float32)
    factors[0, column(augmentation, "area")] = 0
    cropped = augmentation.crop(ramp, factors).numpy()
    assert np.ptp(cropped) == pytest.approx(np.sqrt(low), rel=0.03)


def test_flip_mirrors_the_lower_half_of_its_numbers_and_nothing_else():
    images = smooth_images(4)
    augmentation = augment.make("flip", (13, 11, 3))
    flipped = augmentation(images, np.float32([[0.0], [0.499], [0.5], [0.999]])).numpy() * 255
    np.testing.assert_allclose(flipped[:2], images[:2, :, ::-1], atol=0.01)
    np.testing.assert_allclose(flipped[2:], images[2:], atol=0.01)


@pytest.mark.parametrize("name", COLOUR_POLICIES)
def test_one_image_in_five_is_gray(name):
    augmentation = augment.make(name, (13, 11, 3))
    factors = random_factors(augmentation, 6)
    factors[:, column(augmentation, "gray")] = 0.0, 0.1, 0.199, 0.201, 0.5, 0.99
    pictures = augmentation(smooth_images(6), factors).numpy()
    gray = np.ptp(pictures, axis=-1).max((1, 2)) < 1e-4
    assert gray.tolist() == [True, True, True, False, False, False]


def test_the_imagenet_recipe_makes_gray_before_the_jitter_and_the_cifar_recipe_after_it():
    assert augment.POLICIES["crop_jitter"].steps[-2:] == ("grayscale", "jitter")
    assert augment.POLICIES["crop_jitter_cifar"].steps[-2:] == ("jitter", "grayscale")


def test_middle_numbers_of_the_jitter_change_no_colour():
    for name in COLOUR_POLICIES:
        augmentation = augment.make(name, (13, 11, 3))
        images = smooth_images(3).astype(np.float32) / 255
        factors = np.full([3, augmentation.num_factors], 0.5, np.float32)
        np.testing.assert_allclose(augmentation.finish(images, factors), images, atol=1e-5)


def test_the_ends_of_the_jitter_are_the_recipes_four_tenths():
    image = np.full([2, 5, 3, 3], 0.5, np.float32)
    for name in COLOUR_POLICIES:
        augmentation = augment.make(name, (5, 3, 3))
        factors = np.full([2, augmentation.num_factors], 0.5, np.float32)
        factors[:, column(augmentation, "brightness")] = 0.0, 1 - 2**-24
        bright = augmentation.finish(image, factors).numpy()
        np.testing.assert_allclose(bright.mean((1, 2, 3)), [0.3, 0.7], atol=1e-4)


def test_noise_is_gaussian_of_the_stated_size_and_keyed_by_both_of_its_numbers():
    augmentation = augment.make("crop_flip_noise", (53, 47, 3))
    image = np.full([4, 53, 47, 3], 0.5, np.float32)
    factors = np.full([4, 7], 0.5, np.float32)
    factors[1, column(augmentation, "noise_key")] += 2**-24 * 2
    factors[2, column(augmentation, "noise_counter")] += 2**-24 * 2
    noise = augmentation.finish(image, factors).numpy() - 0.5
    assert np.abs(noise.std((1, 2, 3)) - augment.NOISE_DEVIATION).max() < 0.002
    assert np.abs(noise.mean((1, 2, 3))).max() < 0.003
    assert np.abs(np.corrcoef(noise[:3].reshape(3, -1)) - np.eye(3)).max() < 0.05
    assert (noise[3] == noise[0]).all()


def test_digits_stay_upright_near_their_place_on_black():
    image = np.zeros([1, 16, 16, 1], np.float32)
    image[0, 3:13, 7:9] = 1  # a one
    augmentation = augment.make("digits", (16, 16, 1))
    factors = random_factors(augmentation, 101)
    pictures = augmentation(np.repeat(image, 101, axis=0), factors).numpy()[..., 0]
    rows, columns = np.mgrid[:16, :16]
    mass = pictures.sum((1, 2))
    centre = np.stack([(pictures * rows).sum((1, 2)), (pictures * columns).sum((1, 2))]) / mass
    assert np.abs(centre - 7.5).max() < 1.2  # one pixel, and a little where the ends leave the frame
    assert mass.min() > 20 * 0.9**2 * 0.8 and mass.max() < 20 * 1.1**2 * 1.05
    tall = (pictures * (rows - centre[0][:, None, None]) ** 2).sum((1, 2))
    wide = (pictures * (columns - centre[1][:, None, None]) ** 2).sum((1, 2))
    assert (tall > 3 * wide).all()  # a turn of 8 degrees and a small shear do not lay it down
    assert np.ptp(mass) > 3 and np.ptp(centre, axis=1).min() > 1.4


def test_digits_are_brought_to_the_size_before_they_are_turned():
    images = smooth_images(3, 31, 29, 1)
    augmentation = augment.make("digits", (31, 29, 1), size=16)
    still = np.full([3, 5], 0.5, np.float32)
    np.testing.assert_allclose(augmentation(images, still), augmentation.plain(images), atol=1e-5)


def test_none_keeps_the_pixels_bit_for_bit_and_resizes_as_pil():
    images = smooth_images(3)
    nothing = np.zeros([3, 0], np.float32)
    np.testing.assert_array_equal(augment.make("none", (13, 11, 3))(images, nothing), images / np.float32(255))
    resized = augment.make("none", (13, 11, 3), size=7).plain(images).numpy() * 255
    for image, result in zip(images, resized, strict=True):
        expected = Image.fromarray(image).resize((7, 7), Image.Resampling.BILINEAR)
        assert np.abs(result - np.asarray(expected)).max() <= 1.01


@pytest.mark.parametrize("name", augment.POLICIES)
def test_plain_images_are_the_centre_for_crop_policies_and_the_whole_image_otherwise(name):
    images = smooth_images(3, 53, 37)
    plain = augment.make(name, (53, 37, 3), size=14).plain(images).numpy() * 255
    whole = name in {"none", "flip", "cifar_cpu", "digits"}
    side = 37 * 224 / 256
    box = (0, 0, 37, 53) if whole else ((37 - side) / 2, (53 - side) / 2, (37 + side) / 2, (53 + side) / 2)
    for image, result in zip(images, plain, strict=True):
        expected = Image.fromarray(image).resize((14, 14), Image.Resampling.BILINEAR, box=box)
        assert np.abs(result - np.asarray(expected)).max() <= 1.01


def test_centre_crop_shows_the_same_in_training_and_evaluation():
    images = smooth_images(3, 29, 23)
    augmentation = augment.make("centre_crop", (29, 23, 3), size=16)
    np.testing.assert_array_equal(augmentation(images, np.zeros([3, 0], np.float32)), augmentation.plain(images))


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        ((0.5,), (0.25,)),
        (0.5, None),
        (None, 0.5),
        ((), ()),
    ],
)
def test_mean_and_std_are_applied_last_to_augmented_and_plain_images_alike(mean, std):
    images = smooth_images(5)
    bare = augment.make("crop_jitter", (13, 11, 3))
    normalised = augment.make("crop_jitter", (13, 11, 3), mean=mean, std=std)
    factors = random_factors(bare, 5)
    by = np.float32(std if std else 1.0)
    shift = np.float32(mean if mean else 0.0)
    np.testing.assert_allclose(normalised(images, factors), (bare(images, factors) - shift) / by, atol=1e-4)
    np.testing.assert_allclose(normalised.plain(images), (bare.plain(images) - shift) / by, atol=1e-4)


def test_without_a_size_images_keep_their_own():
    augmentation = augment.make("crop_flip", (13, 11, 1))
    assert augmentation.image_shape == (13, 11, 1)
    pictures = augmentation(smooth_images(2, channels=1), random_factors(augmentation, 2))
    assert pictures.shape == (2, 13, 11, 1)


def test_an_augmentation_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        augment.make("flip", (13, 11, 3)).name = "none"


def test_an_unknown_policy_is_answered_with_the_nearest_name_and_all_names():
    with pytest.raises(ValueError, match=r"'crop_jiter'\. Did you mean 'crop_jitter'\? Available: none, "):
        augment.make("crop_jiter", (13, 11, 3))
    with pytest.raises(ValueError, match=r"Unknown augmentation policy 'xyz'\. Available: none, .*digits\."):
        augment.make("xyz", (13, 11, 3))


@pytest.mark.parametrize("name", COLOUR_POLICIES)
def test_colour_policies_refuse_images_of_one_channel_and_name_those_that_work(name):
    with pytest.raises(ValueError, match="needs images with 3 channels") as refusal:
        augment.make(name, (13, 11, 1))
    named = str(refusal.value).split("one channel: ")[1].rstrip(".").split(", ")
    assert set(named) == set(augment.POLICIES) - set(COLOUR_POLICIES)
    for other in named:
        augmentation = augment.make(other, (13, 11, 1))
        images = smooth_images(2, channels=1)
        assert augmentation(images, random_factors(augmentation, 2)).shape == (2, 13, 11, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_shape": (13, 11, 4)}, "must have 1 or 3 channels"),
        ({"image_shape": (None, None, 3)}, "differing sizes .* give size"),
        ({"size": 0}, "size must be a positive whole number of pixels.* got 0"),
        ({"size": 22.4}, "size must be a positive whole number of pixels.* got 22.4"),
        ({"mean": (0.5, 0.5)}, r"mean must be 1 or 3 finite numbers .* got \[0.5, 0.5\]"),
        ({"std": (0.5, 0.5, 0.5, 0.5)}, "std must be 1 or 3 finite numbers"),
        ({"mean": float("nan")}, r"mean must be 1 or 3 finite numbers .* got \[nan\]"),
        ({"std": (0.2, 0.0, 0.2)}, "std must be positive in every channel"),
        ({"std": -1.0}, "std must be positive in every channel"),
    ],
)
def test_bad_options_are_refused_when_the_policy_is_made(options, message):
    with pytest.raises(ValueError, match=message):
        augment.make(**{"name": "flip", "image_shape": (13, 11, 3)} | options)


def test_images_and_numbers_that_do_not_fit_the_policy_are_refused():
    augmentation = augment.make("crop_flip", (13, 11, 3))
    images, factors = smooth_images(2), random_factors(augmentation, 2)
    with pytest.raises(ValueError, match=r"takes factors of shape \[B, 5\], got \(2, 4\)"):
        augmentation(images, factors[:, :4])
    with pytest.raises(ValueError, match=r"made for images \[B, h, w, 3\], got shape \(2, 13, 11, 1\)"):
        augmentation(images[..., :1], factors)
    with pytest.raises(ValueError, match=r"made for images \[B, h, w, 3\], got shape \(13, 11, 3\)"):
        augmentation.plain(images[0])
    with pytest.raises(ValueError, match=r"must be uint8, or float32 in \[0, 1\], got int64"):
        augmentation(images.astype(np.int64), factors)
