"""Run folders read back."""

import shutil
from dataclasses import replace

import keras
import numpy as np
import pytest

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
    with pytest.raises(ValueError, match=r"gives images 16x16x3, .* takes 16x16x1"):
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
    with pytest.raises(ValueError, match=r"gives images 17x17x1, the network of .* takes 16x16x1"):
        load_run(finished_run).sources(["augment.size=17"])


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
