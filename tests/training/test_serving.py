"""What an export has to know of a run."""

import numpy as np

from selabel_tf.training import serving
from selabel_tf.training.trained_run import load_run


def test_preprocessing_is_that_of_the_runs_images(finished_run):
    run = load_run(finished_run)
    made = serving.preprocessing(run)
    assert (made.image_shape, made.region, made.mean, made.std) == ((16, 16, 1), "whole", (0.0,), (1.0,))
    pixels = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 1), np.uint8)
    np.testing.assert_array_equal(made.of_pixels(pixels), pixels.astype(np.float32) / np.float32(255))


def test_clusters_are_named_only_by_the_runs_own_images(finished_run):
    run = load_run(finished_run)
    train, _ = run.sources()
    known = serving.facts(run, train)
    assert (known["backbone"], known["epoch"], known["training_set"]) == ("small_conv", 3, "digits")
    assert [len(head) for head in known["clusters"]] == [5, 7]
    for head, column in zip(known["clusters"], run.model.labels.T, strict=True):
        assert [row["size"] for row in head] == np.bincount(column, minlength=len(head)).tolist()
    assert any("class" in row for row in known["clusters"][0])
    for other in (None, train.subset([0, 1])):
        assert not any("class" in row for row in serving.facts(run, other)["clusters"][0])
