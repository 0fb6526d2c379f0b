"""Whole runs, small: 60 digits, two heads, two epochs."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from selabel_tf import config as configs
from selabel_tf.config import Augment, Data, Evaluation, Label, Model
from selabel_tf.data import digits
from selabel_tf.export import labels as label_files
from selabel_tf.training import assembly, assessment, distribution, experiment, report_data
from selabel_tf.training.run_log import read_records


@pytest.fixture(autouse=True)
def seeds_only(monkeypatch):
    """Op determinism cannot be switched off again in a process: test_tools_train.py tries the real thing."""
    monkeypatch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, small_config):
    """(folder, config, result, what was said, label passes) of a run that came to its end."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    said, passes, progress = [], [], []
    watcher = experiment.Watcher(said.append, passes.append, lambda *args: progress.append(args))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
        result = experiment.run(small_config(), folder, watcher=watcher)
    return folder, small_config(), result, said, passes, progress


def test_the_folder_holds_all_that_a_run_leaves(finished):
    folder = finished[0]
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.json",
        "labels.csv",
        "metrics.jsonl",
        "checkpoints",
        "backbone.keras",
        "logs",
        "report.html",
        "results.json",
    }
    assert experiment.is_finished(folder)
    assert configs.from_json((folder / "config.json").read_text()) == finished[1]


def test_the_log_tells_every_epoch_and_every_head_of_every_pass(finished):
    records = read_records(finished[0] / "metrics.jsonl")
    epochs = [r for r in records if r["kind"] == "epoch"]
    labels = [r for r in records if r["kind"] == "labels"]
    assert [r["step"] for r in epochs] == [3, 6, 9]
    assert [r["learning_rate"] for r in epochs] == pytest.approx([0.05, 0.05, 0.005])
    assert all(r["images_per_second"] > 0 for r in epochs)
    assert [(r["step"], r["head"]) for r in labels] == [(0, 0), (0, 1), (3, 0), (3, 1), (6, 0), (6, 1)]
    assert [p.step for p in finished[4]] == [0, 3, 6]


def test_the_seconds_of_the_epochs_add_up_to_all_that_training_took(tmp_path, small_config):
    waited = []

    def waits(label_pass):  # between the steps, and so in none of them
        time.sleep(0.4)
        waited.append(label_pass.step)

    begun = time.perf_counter()
    experiment.run(small_config(), tmp_path / "run", watcher=experiment.Watcher(on_label_pass=waits))
    took = time.perf_counter() - begun
    epochs = [r for r in read_records(tmp_path / "run" / "metrics.jsonl") if r["kind"] == "epoch"]
    assert waited == [0, 3, 6]  # one at the beginning of each of three epochs
    assert all(r["seconds"] > 0.4 + 60 / r["images_per_second"] for r in epochs)
    assert sum(r["seconds"] for r in epochs) < took


def test_tensorboard_has_curves_and_filters(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(finished[0] / "logs"))
    events.Reload()
    tags = events.Tags()
    wanted = {"training/loss", "training/learning_rate", "training/images_per_second", "labels/nmi"}
    assert wanted <= set(tags["tensors"])
    assert "first_layer" in tags["tensors"]


def test_the_labels_file_is_of_this_dataset_and_this_run(finished):
    folder, config, *_ = finished
    source = assembly.make_source(config)
    labels = label_files.read(folder / "labels.csv", source.fingerprint)
    assert labels.labels.shape == (60, 2)
    assert labels.config_hash == configs.config_hash(config)
    last = [r for r in read_records(folder / "metrics.jsonl") if r["kind"] == "labels"][-2:]
    for record in last:  # the sizes logged at the last pass are those of the file
        sizes = np.bincount(labels.labels[:, record["head"]], minlength=(5, 7)[record["head"]])
        assert (sizes.min(), sizes.max()) == (record["smallest"], record["largest"])


def test_the_backbone_loads_alone_and_gives_the_measured_features(finished):
    folder, config, result, *_ = finished
    backbone = keras.models.load_model(folder / "backbone.keras")
    source = assembly.make_source(config)
    (images, _), *_ = source.plain_batches(60).as_numpy_iterator()
    features = np.asarray(backbone(images))
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    similar = (features / norms) @ (features / norms).T
    np.fill_diagonal(similar, -np.inf)
    nearest = np.argsort(-similar, axis=1)[:, :5]
    weights = np.exp(np.take_along_axis(similar, nearest, 1) / 0.1)
    votes = np.zeros((60, 10))
    for column in range(5):
        votes[np.arange(60), source.classes[nearest[:, column]]] += weights[:, column]
    accuracy = (votes.argmax(1) == source.classes).mean()
    measured = {row["what"]: row["accuracy"] for row in result.numbers["knn"]}
    assert measured["learned features"] == pytest.approx(accuracy, abs=1.5 / 60)


def test_the_tables_compare_with_what_needs_no_training(finished):
    folder, _, result, *_ = finished
    clusters, neighbours = result.tables
    assert [row[:2] for row in clusters.rows] == [
        ("self-labels, mean of 2 heads", 7),
        ("K-means on raw pixels", 7),
        ("K-means on raw pixels", 10),
        ("K-means on learned features", 7),
        ("K-means on learned features", 10),
    ]
    assert [row[0] for row in neighbours.rows] == ["raw pixels", "random weights", "learned features"]
    results = json.loads((folder / "results.json").read_text())
    assert results["numbers"] == result.numbers
    page = (folder / "report.html").read_text()
    assert "K-means on learned features" in page
    assert page.count('id="r0-training-labels-') == 2  # the clusters of both heads


def test_progress_is_told(finished):
    _, _, _, said, _, progress = finished
    assert said[0] == "60 images 16x16x1 from digits, backbone small_conv, clusters 5, 7 (2 heads); 1 device(s)"
    assert said[1].startswith("60 x 7 scores on 1 x ") and "kept as float32 in memory" in said[1]
    assert progress[0] == (0, "images", 60, 60)


def test_other_settings_in_the_same_folder_are_refused(finished, small_config):
    with pytest.raises(ValueError, match=r"other settings:\n  seed: 0 -> 1\n.*--workdir of its own"):
        experiment.run(small_config(seed=1), finished[0])


def test_a_folder_with_something_else_in_it_is_refused(tmp_path, small_config):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        experiment.run(small_config(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": Model(backbone="resnet19")}, "Unknown backbone 'resnet19'"),
        ({"augment": Augment(policy="digit")}, "digits"),
        ({"augment": Augment(policy="crop_jitter")}, "channel"),
        ({"model": Model(num_clusters=(61,))}, "num_examples=60 is fewer than the 61 clusters"),
        ({"model": Model(width=8)}, "width"),
        ({"data": Data(source="tfds", name="cifar10", data_dir="nowhere")}, "cifar10"),
        ({"evaluation": Evaluation(knn_k=60)}, r"evaluation\.knn_k=60: k=60, but .* from 1 to 59\. Or leave them out:"),
        ({"evaluation": Evaluation(knn=False, knn_every=1, knn_k=60)}, r"evaluation\.knn_every=0"),
    ],
)
def test_what_cannot_work_is_refused_before_the_folder_is_made(tmp_path, changes, message, small_config):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        experiment.run(small_config(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (None, r"others has no true classes to compare with\. Or leave them out: evaluation\.knn=false"),
        (np.array([0, 11]), "The queries have 2 classes, the bank has 10, and not among them is 11"),
    ],
)
def test_a_test_split_that_nothing_can_be_compared_with_is_refused_at_once(small_config, monkeypatch, classes, message):
    config = small_config(data=Data("tfds", "voc/2007", test_split="test"))
    source = digits().first_per_class(6)
    monkeypatch.setattr(assessment, "make_source", lambda *_: SimpleNamespace(name="others", classes=classes))
    with pytest.raises(ValueError, match=message):
        assessment.check(config, source)
    assessment.check(replace(config, evaluation=Evaluation(knn=False)), source)
    source.classes = None  # then features are not judged
    assessment.check(config, source)


def test_a_batch_that_does_not_divide_over_replicas_is_refused(tmp_path, monkeypatch, two_replicas, small_config):
    monkeypatch.setattr(distribution, "strategy", lambda devices: two_replicas)
    with pytest.raises(ValueError, match=r"batch_size=23 does not divide over 2 replicas.*e\.g\. 24"):
        experiment.run(small_config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_on_two_replicas_comes_to_its_end(tmp_path, monkeypatch, two_replicas, small_config):
    monkeypatch.setattr(distribution, "strategy", lambda devices: two_replicas)
    config = small_config(batch_size=16, epochs=1, label=Label(num_relabels=1))
    result = experiment.run(config, tmp_path / "run")
    assert result.numbers["knn"][2]["accuracy"] > 0.3


def test_mixed_precision_comes_to_its_end(tmp_path, small_config):
    config = small_config(
        model=Model(num_clusters=(5,), precision="mixed_float16"),
        epochs=1,
        label=Label(num_relabels=1),
        evaluation=Evaluation(knn=False, kmeans=False),
    )
    result = experiment.run(config, tmp_path / "run")
    ((row,),) = [table.rows for table in result.tables]  # without K-means and neighbours the labels alone
    assert row[:2] == ("self-labels, one head", 5)
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.parametrize(
    ("evaluation", "features", "clusterings", "page"),
    [
        (Evaluation(knn_k=5, baselines=False), ["learned features"], 3, True),
        (Evaluation(knn_k=5, report=False), ["raw pixels", "random weights", "learned features"], 5, False),
    ],
)
def test_a_trial_may_leave_out_baselines_and_page(tmp_path, small_config, evaluation, features, clusterings, page):
    config = small_config(evaluation=evaluation, epochs=1, label=Label(num_relabels=1), model=Model(num_clusters=(5,)))
    result = experiment.run(config, tmp_path)
    assert [row["what"] for row in result.numbers["knn"]] == features
    assert len(result.numbers["clusters"]) == clusterings  # self-labels; K-means by 5 and 10, on pixels and on features
    assert ("untrained" in result.tables[1].note) == ("random weights" in features)
    assert (tmp_path / "report.html").is_file() == page == (result.contents is not None)
    assert experiment.is_finished(tmp_path)
    if not page:
        assert report_data.of_folder(tmp_path).tables  # and it can be drawn later
        (tmp_path / "report.html").write_text("drawn by tools.report when the run was not finished")
        assessment.write(result, config, tmp_path)
        assert not (tmp_path / "report.html").exists()


def test_a_damaged_image_among_few_stops_the_run_by_its_name(tmp_path, small_config):
    for number in range(7):
        keras.utils.save_img(tmp_path / f"{number}.png", np.random.default_rng(number).random((16, 16, 3)))
    whole = (tmp_path / "3.png").read_bytes()
    (tmp_path / "3.png").write_bytes(whole[: len(whole) // 2])
    config = small_config(
        data=Data(source="folder", path=str(tmp_path)), model=Model(num_clusters=(3,)), augment=Augment()
    )
    with pytest.raises(
        ValueError, match=r"1 of 7 images .*\n  3\.png cannot be decoded as an image [^\n]*\nAll are in"
    ):
        experiment.run(config, tmp_path.parent / "damaged-run")


def test_a_folder_of_images_without_classes_runs_too(tmp_path, small_config):
    generator = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for number in range(12):
        keras.utils.save_img(tmp_path / "images" / f"{number}.png", generator.random((20 + number, 24, 3)))
    config = small_config(
        data=Data(source="folder", path=str(tmp_path / "images")),
        augment=Augment(policy="crop_jitter", size=16, mean=(0.5,), std=(0.25,)),
        model=Model(num_clusters=(3,)),
        label=Label(num_relabels=1, rounding="balanced"),
        epochs=1,
        batch_size=5,
    )
    result = experiment.run(config, tmp_path / "run")
    assert result.tables == ()
    labels = label_files.read(tmp_path / "run" / "labels.csv")
    assert labels.ids[:3] == ("0.png", "1.png", "10.png")
    np.testing.assert_array_equal(np.bincount(labels.labels[:, 0]), [4, 4, 4])


def test_kernels_that_a_killed_label_pass_left_on_disk_are_removed(tmp_path, small_config):
    left = tmp_path / "run" / ".selabel-kernel-abc"
    left.mkdir(parents=True)
    (left / "00000.float32").write_bytes(b"\0" * 8)
    evaluation = Evaluation(knn=False, kmeans=False, report=False)
    experiment.run(small_config(epochs=0, evaluation=evaluation), tmp_path / "run")
    assert not left.exists()
