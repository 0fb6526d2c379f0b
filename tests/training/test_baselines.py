"""The paper's baselines are runs like any other: K-means labels, given labels, random labels, random weights."""

import shutil
from dataclasses import replace

import keras
import numpy as np
import pytest

from selabel_tf.config import Augment, Data, Evaluation, Label, Model
from selabel_tf.export import labels as label_files
from selabel_tf.training import assembly, distribution, experiment, quarantine
from selabel_tf.training.run_log import TIMING, read_records
from selabel_tf.training.trained_run import load_run

QUICK = Evaluation(knn_k=5, kmeans=False)


@pytest.fixture(autouse=True)
def seeds_only(monkeypatch):
    """Op determinism cannot be switched off again in a process: test_tools_train.py tries the real thing."""
    monkeypatch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)


class Kill(keras.callbacks.Callback):
    """Ends a run as Ctrl-C would, in the middle of the third epoch."""

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == 8:
            raise KeyboardInterrupt


def test_k_means_runs_resume_to_the_same_end(tmp_path, small_config):
    evaluation = replace(QUICK, knn_every=1)
    config = small_config(label=Label(num_relabels=3, schedule="linear", labeller="kmeans"), evaluation=evaluation)
    result = experiment.run(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        experiment.run(config, tmp_path / "cut", watcher=experiment.Watcher(callbacks=(Kill(),)))
    experiment.run(config, tmp_path / "cut")
    whole, cut = (read_records(tmp_path / name / "metrics.jsonl") for name in ("whole", "cut"))
    for ours, theirs in zip(whole, cut, strict=True):
        for name in ours.keys() - set(TIMING):
            exact = not isinstance(theirs[name], float)
            assert ours[name] == (theirs[name] if exact else pytest.approx(theirs[name], rel=1e-4)), name
    assert [r["kind"] for r in whole] == ["labels", "labels", "epoch", "knn"] * 3
    whole, cut = (label_files.read(tmp_path / name / "labels.csv") for name in ("whole", "cut"))
    np.testing.assert_array_equal(whole.labels, cut.labels)
    assert result.facts["labels by"] == "kmeans"
    assert result.facts["solves that did not converge"] == 0


def test_training_on_given_labels_learns_them(tmp_path, small_config):
    config = small_config(
        data=Data(source="digits", examples_per_class=20),
        model=Model(num_clusters=(10,)),
        label=Label(num_relabels=7, labeller="given"),
        evaluation=QUICK,
        epochs=12,
    )
    result = experiment.run(config, tmp_path / "run")
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    assert [(r["step"], r["nmi"]) for r in records if r["kind"] == "labels"] == [(0, 1.0)]
    losses = [r["loss"] for r in records if r["kind"] == "epoch"]
    assert losses[-1] < 0.5 * losses[0]
    labels = label_files.read(tmp_path / "run" / "labels.csv")
    np.testing.assert_array_equal(labels.labels[:, 0], assembly.make_source(config).classes)
    assert result.numbers["clusters"][0]["nmi"] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": Label(labeller="given")}, "digits has 10 classes and the heads 5 7 clusters"),
        ({"evaluation": Evaluation(knn_every=2), "data": "unlabelled"}, r"evaluation\.knn_every=2 compares with true"),
        ({"data": "unlabelled", "label": Label(labeller="given")}, "trains on true classes"),
        ({"data": "uneven"}, "has no classes to make uneven"),
    ],
)
def test_what_needs_classes_is_refused_before_the_folder_is_claimed(tmp_path, small_config, changes, message):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(8):
        keras.utils.save_img(folder / f"{number}.png", np.full((16, 16, 3), 20.0 * number), scale=False)
    unlabelled = Data(source="folder", path=str(folder))
    named = {"unlabelled": unlabelled, "uneven": replace(unlabelled, imbalance="heavy")}
    if isinstance(changes.get("data"), str):
        changes = {**changes, "data": named[changes["data"]], "augment": Augment(policy="none")}
    with pytest.raises(ValueError, match=message):
        experiment.run(small_config(**changes), tmp_path / "run")
    # of a folder, at most the list of images that were examined first
    assert [path.name for path in (tmp_path / "run").glob("*")] in ([], [quarantine.FILE])


def test_zero_label_optimisations_leave_the_first_labels(tmp_path, small_config):
    config = small_config(label=Label(num_relabels=0), evaluation=QUICK)
    said = []
    experiment.run(config, tmp_path / "run", watcher=experiment.Watcher(say=said.append))
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    assert {r["kind"] for r in records} == {"epoch"}
    first = assembly.make_model(config, assembly.make_source(config)).labels
    np.testing.assert_array_equal(label_files.read(tmp_path / "run" / "labels.csv").labels, first)
    assert not [text for text in said if text.startswith("Doctor")]


def test_random_weights_are_a_finished_run_without_training(tmp_path, small_config):
    config = small_config(epochs=0, evaluation=QUICK)
    result = experiment.run(config, tmp_path / "run")
    assert experiment.is_finished(tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.json", "labels.csv", "checkpoints", "backbone.keras", "report.html", "results.json"} <= names
    accuracy = {row["what"]: row["accuracy"] for row in result.numbers["knn"]}
    assert accuracy["learned features"] == accuracy["random weights"]
    assert result.facts["last loss"] is None and result.facts["epochs"] == 0
    run = load_run(tmp_path / "run")
    assert run.checkpoint.facts["epoch"] == run.checkpoint.facts["step"] == 0
    for ours, drawn in zip(run.model.weights, run.untrained_model().weights, strict=True):
        np.testing.assert_array_equal(ours, drawn)
    (tmp_path / "run" / "results.json").unlink()  # killed while it was measured: it goes on from the checkpoint
    again = experiment.run(config, tmp_path / "run")
    assert again.numbers == result.numbers


def test_an_uneven_training_set_is_that_of_the_config(tmp_path, small_config):
    data = Data(source="digits", examples_per_class=20, imbalance="heavy")
    source = assembly.make_source(small_config(data=data))
    np.testing.assert_array_equal(np.bincount(source.classes), [20, 18, 16, 14, 12, 10, 8, 6, 4, 2])
    assert assembly.make_source(small_config(data=data, seed=1)).ids != source.ids
    light = assembly.make_source(small_config(data=replace(data, imbalance="light")))
    np.testing.assert_array_equal(np.bincount(light.classes), [20] * 9 + [10])


def test_another_split_is_left_whole(small_config):
    # digits have one split only: asked for "another" one, they come as they are
    data = Data(source="digits", examples_per_class=20, imbalance="heavy")
    assert assembly.make_source(small_config(data=data), "test").num_examples == 1797


def test_nearest_neighbours_over_time_end_with_the_accuracy_of_the_report(tmp_path, small_config):
    config = small_config(evaluation=replace(QUICK, knn_every=2), epochs=4, label=Label(num_relabels=2))
    result = experiment.run(config, tmp_path / "run")
    found = [r for r in read_records(tmp_path / "run" / "metrics.jsonl") if r["kind"] == "knn"]
    assert [(r["epoch"], r["step"], r["k"], r["sigma"]) for r in found] == [(2, 6, 5, 0.1), (4, 12, 5, 0.1)]
    assert found[-1]["accuracy"] == result.numbers["knn"][2]["accuracy"]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "logs"))
    events.Reload()
    assert [event.step for event in events.Tensors("evaluation/knn")] == [6, 12]


def test_large_sets_are_thinned_out_evenly_for_neighbours_over_time(monkeypatch):
    from selabel_tf.data import digits
    from selabel_tf.training.run_callbacks import KnnCallback

    monkeypatch.setattr(KnnCallback, "BANK", 599)
    monkeypatch.setattr(KnnCallback, "QUERIES", 211)
    callback = KnnCallback(digits(), digits(), every=1, k=5, sigma=0.1)
    assert (callback.train.num_examples, callback.test.num_examples) == (599, 211)
    assert callback.train.ids[:3] == ("0", "3", "6") and callback.train.ids[-1] == "1794"


def test_the_folder_of_another_labeller_is_not_gone_on_with(tmp_path, finished_run, small_config):
    shutil.copytree(finished_run, tmp_path / "run")
    config = small_config(label=Label(num_relabels=3, schedule="linear", labeller="kmeans"))
    with pytest.raises(ValueError, match=r"label\.labeller: 'sinkhorn' -> 'kmeans'"):
        experiment.check_folder(config, tmp_path / "run")
