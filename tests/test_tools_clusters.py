"""The real program, in processes of its own."""

import shutil

import keras
import numpy as np
import pytest

from selabel_tf.config import Augment, Data, Label, Model
from selabel_tf.evaluation import clustering, results
from selabel_tf.export import labels as label_files
from selabel_tf.training import distribution, experiment
from selabel_tf.training.trained_run import load_run


@pytest.fixture(scope="module")
def clusters(python):
    """(exit code, standard output, standard error) of tools.clusters."""

    def program(*arguments, check=True):
        done = python("-m", "tools.clusters", *arguments)
        if check:
            assert done.returncode == 0, done.stderr
        return done.returncode, done.stdout, done.stderr

    return program


@pytest.fixture(scope="module")
def run(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("clusters") / "run")


@pytest.fixture(scope="module")
def measured(clusters, run):
    return clusters(f"--workdir={run}")[1:]


def test_labels_of_training_are_measured_against_the_true_classes(run, measured):
    found = results.load_all(run)["clusters"]
    classes = load_run(run).sources()[0].classes
    labels = label_files.read(run / "labels.csv").labels
    heads = [row for row in found["rows"] if row["head"] in ("0", "1") and "other_head" not in row]
    for row, column, k in zip(heads, labels.T, (5, 7), strict=True):
        assert (row["labelling"], row["images"], row["clusters"]) == ("labels", "digits", k)
        assert {name: row[name] for name in clustering.scores(column, classes)} == pytest.approx(
            clustering.scores(column, classes)
        )
    (between,) = [row for row in found["rows"] if "other_head" in row]
    assert between["nmi"] == pytest.approx(clustering.nmi(*labels.T))
    assert found["data"]["own"] is True
    assert found["settings"]["entropy"] == "nats"


def test_the_output_is_tables_where_they_are_kept_and_what_comes_next(run, measured):
    output, errors = measured
    assert "Labels of the training images: digits, 60 images, 10 true classes" in output
    assert "NMI between heads" in output
    assert "There is no test split, so no unseen images. Choose other images with --set data.source=folder" in output
    lines = output.strip().splitlines()
    assert f"Results: {run}/evaluation/clusters.json" in lines
    assert lines[-1] == f"Next: python -m tools.compare {run}"
    assert errors == ""


def test_unseen_images_are_judged_by_what_the_heads_predict_for_them(clusters, run):
    _, output, _ = clusters(f"--workdir={run}", "--set=data.examples_per_class=7")
    found = results.load_all(run)["clusters-digits"]
    loaded = load_run(run)
    source, _ = loaded.sources(["data.examples_per_class=7"])
    batches = [loaded.model.assign(images) for images, _ in source.plain_batches(11)]
    predicted = np.concatenate(batches)
    assert {row["labelling"] for row in found["rows"]} == {"assigned"}  # the labels are of other images
    assert found["rows"][1]["ari"] == pytest.approx(clustering.ari(predicted[:, 1], source.classes))
    assert found["data"]["own"] is False
    assert "Predictions for unseen images: digits, 70 images, 10 true classes" in output
    assert "predicting  100% 70/70" in output
    assert "There is no test split" not in output


def test_images_without_true_classes_have_sizes_and_agreement_of_heads(clusters, small_config, tmp_path, monkeypatch):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, pixels in enumerate(np.random.default_rng(0).integers(256, size=(11, 16, 16, 3))):
        keras.utils.save_img(folder / f"{number}.png", pixels, data_format="channels_last", scale=False)
    config = small_config(
        data=Data(source="folder", path=str(folder)),
        augment=Augment(policy="none", size=16),
        model=Model(backbone="small_conv", num_clusters=(3, 2)),
        label=Label(num_relabels=1, schedule="linear"),
        epochs=1,
    )
    monkeypatch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
    experiment.run(config, tmp_path / "run")
    _, output, _ = clusters(f"--workdir={tmp_path / 'run'}")
    rows = results.load_all(tmp_path / "run")["clusters"]["rows"]
    labels = label_files.read(tmp_path / "run" / "labels.csv").labels
    assert [row["head"] for row in rows] == ["0", "1", "0"]
    assert [row["largest"] for row in rows[:2]] == [np.bincount(column).max() for column in labels.T]
    assert rows[2]["nmi"] == pytest.approx(clustering.nmi(*labels.T))
    assert "11 images, no true classes to measure against" in output


def test_a_folder_without_a_run_is_one_message(clusters, tmp_path):
    code, _, errors = clusters(f"--workdir={tmp_path}", check=False)
    assert code == 1
    assert "holds no run" in errors
    assert "Traceback" not in errors
