"""Run folders read back."""

import shutil
from dataclasses import replace

import keras
import numpy as np
import pytest

from selabel_tf.config import Data
from selabel_tf.export import labels as label_files
from selabel_tf.training import assembly
from selabel_tf.training.trained_run import load_run


def test_the_network_and_its_labels_come_back(finished_run):
    run = load_run(finished_run)
    images = np.random.default_rng(0).normal(size=(7, *run.training_set.image_shape)).astype(np.float32)
    saved = keras.models.load_model(finished_run / "backbone.keras")
    np.testing.assert_array_equal(run.model.embed(images), saved(images, training=False))
    np.testing.assert_array_equal(run.model.labels, label_files.read(finished_run / "labels.csv").labels)
    assert run.checkpoint.facts["epoch"] == 3


def test_a_run_is_read_without_its_training_images(finished_run, monkeypatch):
    monkeypatch.setattr(assembly, "digits", lambda: pytest.fail("the training images were read"))
    assert load_run(finished_run).training_set.num_examples == 60


def test_its_images_are_those_of_training(finished_run):
    run = load_run(finished_run)
    train, test = run.sources()
    assert train.fingerprint == run.training_set.fingerprint
    assert test is None


def test_other_images_come_in_the_size_of_the_network(finished_run, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        picture = np.full((23, 29, 1), 99, np.uint8)
        keras.utils.save_img(tmp_path / name / "a.png", picture, data_format="channels_last", scale=False)
    run = load_run(finished_run)
    settings = ["data.source=folder", f"data.path={tmp_path}", "data.examples_per_class=0"]
    with pytest.raises(ValueError, match=r"gives images 16x16x3, .* takes 16x16x1\. Images of a folder have three ch"):
        run.sources(settings)
    colour = replace(run, training_set=replace(run.training_set, image_shape=(16, 16, 3)))
    train, _ = colour.sources(settings)
    assert train.image_shape[:2] == (16, 16)
    assert list(train.classes) == [0, 1]


def test_small_crops_are_left_to_training(finished_run):
    run = load_run(finished_run)
    trained = replace(run.config, augment=replace(run.config.augment, small_crops=2, small_size=8))
    train, _ = replace(run, config=trained).sources()
    images, _ = next(iter(train.train_batches(4)))
    assert images.shape == (4, *run.training_set.image_shape)


def test_images_of_another_input_size_are_refused(finished_run):
    run = load_run(finished_run)
    for settings, shape, remedy in (
        (["augment.size=17"], (16, 16, 1), r"takes 16x16x1\. Leave augment.size as it was in training\.$"),
        ([], (16, 17, 1), r"takes 16x17x1\. Images are brought to squares only: choose images that are stored"),
        ([], (16, 16, 3), r"takes 16x16x3\. Choose images of 3 channels\.$"),
    ):
        other = replace(run, training_set=replace(run.training_set, image_shape=shape))
        with pytest.raises(ValueError, match=rf"gives images .*, the network of .* {remedy}"):
            other.sources(settings)


@pytest.mark.parametrize("setting", ["epochs=7", "augment.small_crops=2"])
def test_settings_of_training_are_refused(finished_run, setting):
    with pytest.raises(ValueError, match=f"'{setting}' is a setting of training"):
        load_run(finished_run).sources([setting])


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        load_run(tmp_path)


def test_a_run_without_a_checkpoint_is_refused(finished_run, tmp_path):
    shutil.copy(finished_run / "config.json", tmp_path)
    with pytest.raises(ValueError, match="no whole checkpoint yet"):
        load_run(tmp_path)


def test_the_untrained_model_is_that_of_the_first_step(finished_run):
    run = load_run(finished_run)
    first = assembly.make_model(run.config, run.sources()[0])
    for here, there in zip(run.untrained_model().trainable_variables, first.trainable_variables, strict=True):
        np.testing.assert_array_equal(here.numpy(), there.numpy())


def test_images_that_are_not_square_come_as_they_are_stored(finished_run):
    run = load_run(finished_run)
    wide = replace(run, training_set=replace(run.training_set, image_shape=(12, 16, 1)))
    assert wide.data_config().augment.size == 0


def pictures(folder, count, channels=1):
    """Two classes of `count` noisy PNG files each."""
    noise = np.random.default_rng(0)
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture = noise.integers(0, 256, (16, 16, channels), np.uint8)
            keras.utils.save_img(folder / name / f"{number}.png", picture, data_format="channels_last", scale=False)
    return folder


@pytest.fixture
def few_of_a_tfds_set(finished_run):
    """As if it had been trained on six images of each class of cifar10, unevenly."""
    run = load_run(finished_run)
    data = Data("tfds", "cifar10", "train", "test", "somewhere", examples_per_class=6, imbalance="light")
    return replace(run, config=replace(run.config, data=data))


def test_a_folder_is_chosen_by_its_path_alone_whatever_the_run_was_trained_on(few_of_a_tfds_set, tmp_path):
    folder = pictures(tmp_path / "images", 3, channels=3)
    run = few_of_a_tfds_set
    run = replace(run, training_set=replace(run.training_set, image_shape=(16, 16, 3)))
    train, test = run.sources(["data.source=folder", f"data.path={folder}"])
    assert (train.num_examples, test) == (6, None)
    assert run.data_config().data == run.config.data


def test_all_images_of_another_set_are_taken_unless_otherwise_said(few_of_a_tfds_set):
    other = few_of_a_tfds_set.data_config(["data.name = cifar100"]).data
    assert (other.name, other.test_split, other.data_dir) == ("cifar100", "test", "somewhere")
    assert (other.examples_per_class, other.imbalance) == (0, "none")
    few = few_of_a_tfds_set.data_config(["data.name=cifar100", "data.examples_per_class=2"]).data
    assert (few.examples_per_class, few.imbalance) == (2, "none")
    moved = few_of_a_tfds_set.data_config(["data.data_dir=elsewhere", "data.name=cifar10"]).data
    assert (moved.data_dir, moved.examples_per_class, moved.imbalance) == ("elsewhere", 6, "light")


def test_a_folder_that_was_moved_is_known_by_its_images(finished_run, tmp_path):
    run = load_run(finished_run)
    data = Data("folder", path=str(pictures(tmp_path / "before", 5)), examples_per_class=3)
    run = replace(run, config=replace(run.config, data=data))
    trained_on = assembly.TrainingSet.of(assembly.make_source(run.config))
    run = replace(run, training_set=trained_on)
    (tmp_path / "before").rename(tmp_path / "after")
    train, _ = run.sources([f"data.path={tmp_path / 'after'}"])
    assert train.fingerprint == trained_on.fingerprint and train.num_examples == 6
    pictures(tmp_path / "other", 2, channels=trained_on.image_shape[2])
    assert run.sources([f"data.path={tmp_path / 'other'}"])[0].num_examples == 4
