"""Accuracy with few labels, measured point by point."""

from dataclasses import replace

import numpy as np
import pytest

from selabel_tf.evaluation import few_label_probe, label_curve
from selabel_tf.evaluation.probe_training import Schedule
from selabel_tf.training import semi_supervised as few
from selabel_tf.training.finetuning import Recipe
from selabel_tf.training.labelled_images import labelled_images
from selabel_tf.training.trained_run import load_run

TUNE = Recipe(Schedule(0.1, 0.1, (), epochs=2, batch_size=10, l2=1e-4), min_steps=7)
RECIPES = {few.FINETUNING: TUNE, few.SCRATCH: replace(TUNE, weights="random")}


@pytest.fixture(scope="module")
def measurement(finished_run):
    run = load_run(finished_run)
    settings = ["data.examples_per_class=25"]
    return few.Measurement(run, labelled_images(run, *run.sources(settings), settings), RECIPES, probe_l2=0.1)


def test_the_probe_is_that_of_the_frozen_features_of_the_labelled_images(measurement):
    found = measurement.point(few.PROBE, 0.5, 3)
    images, backbone = measurement.images, measurement.run.model.backbone
    rows = label_curve.labelled_rows(images.train.classes, 0.5, seed=3)
    train, test = (
        np.concatenate([backbone(batch, training=False) for batch, _ in source.plain_batches(97)])
        for source in (images.train, images.test)
    )
    probe = few_label_probe.fit(train[rows], images.train.classes[rows], 10, l2=0.1)
    accuracy = (probe.scores(test).argmax(axis=1) == images.test.classes).mean()
    assert found["top1"] == pytest.approx(accuracy)
    assert {key: found[key] for key in ("method", "fraction", "labelled", "seed", "l2")} == {
        "method": "linear probe",
        "fraction": 0.5,
        "labelled": 100,
        "seed": 3,
        "l2": 0.1,
    }
    assert found["top1"] <= found["top5"] <= 1


def test_training_has_the_same_budget_from_the_run_and_from_scratch(measurement):
    tuned, scratch = (measurement.point(method, 0.1, 1) for method in (few.FINETUNING, few.SCRATCH))
    assert tuned["labelled"] == scratch["labelled"] == 20
    assert tuned["epochs"] == scratch["epochs"] == 4  # 2 steps an epoch, at least 7 steps
    assert tuned["method"] == "fine-tuning" and scratch["method"] == "from scratch"
    assert measurement.point(few.FINETUNING, 0.1, 1) == tuned


def test_what_cannot_be_measured_is_refused_before_anything_is(measurement):
    measurement.check([0.05, 1.0], [0, 1])
    with pytest.raises(ValueError, match="leaves no image of class"):
        measurement.check([1.0, 0.001], [0])


POINT = {"method": "probe", "fraction": 0.1, "seed": 0, "top1": 0.5}


def test_points_are_kept_until_they_are_removed(tmp_path):
    said, path = [], tmp_path / "evaluation" / "points"
    points = few.Points(path, {"l2": (1, 2)}, said.append)
    assert points.get("probe", 0.1, 0) is None
    points.add(POINT)
    again = few.Points(path, {"l2": [1, 2]}, said.append)
    assert again.get("probe", 0.1, 0) == POINT
    assert again.get("probe", 0.1, 1) is None and again.get("probe", 0.2, 0) is None
    assert said == ["Going on: 1 measured before."]
    again.remove()
    again.remove()
    assert not path.exists()


@pytest.mark.parametrize("content", ['{"settings": {"l2": 3}, "points": []}', "torn {", "[]"])
def test_points_of_other_settings_or_torn_ones_are_dropped(tmp_path, content):
    (tmp_path / "points").write_text(content)
    said = []
    assert few.Points(tmp_path / "points", {"l2": 1}, said.append).found == []
    assert "starting anew" in said[0]
