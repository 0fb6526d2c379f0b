"""Networks trained on the labels of another run: the labels arrive whole, or nothing is written."""

import hashlib
import json
import shutil
from dataclasses import replace

import keras
import numpy as np
import pytest

from selabel_tf import config as configs
from selabel_tf.config import Data, Evaluation, Label, Model
from selabel_tf.export import labels as label_files
from selabel_tf.training import assembly, distribution, experiment, given_labels
from selabel_tf.training.run_log import TIMING, read_records
from selabel_tf.training.trained_run import load_run

QUICK = Evaluation(knn_k=5, kmeans=False)


@pytest.fixture(autouse=True, scope="module")
def seeds_only():
    """Op determinism cannot be switched off again in a process: test_tools_train.py tries the real thing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
        yield


class Kill(keras.callbacks.Callback):
    """Ends a run as Ctrl-C would, in the middle of the third epoch."""

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations.numpy() == 8:
            raise KeyboardInterrupt


def unlabelled(small_config, **changes):
    """A config to retrain with: everything the paper adds is on, and the clusters are those of the labels."""
    config = small_config(evaluation=QUICK)
    return replace(
        config,
        model=Model(num_clusters=(), objectives=("labels", "rotation")),
        augment=replace(config.augment, more="one_of"),
        **{"label": Label(labeller="given"), **changes},
    )


@pytest.fixture(scope="module")
def retrained(tmp_path_factory, small_config, finished_run):
    """(the folder of a run on the labels of `finished_run`, heads in another order; its config)."""
    folder = tmp_path_factory.mktemp("retrained") / "run"
    config = given_labels.transferred(unlabelled(small_config), finished_run, heads=(1, 0))
    experiment.run(config, folder)
    return folder, config


def test_the_clusters_are_those_of_the_labels(small_config, finished_run):
    config = given_labels.transferred(unlabelled(small_config), finished_run)
    assert config.model.num_clusters == (5, 7)
    assert (config.label.labeller, config.label.labels) == ("given", str(finished_run))
    content = (finished_run / "labels.csv").read_bytes()
    assert config.label.labels_sha256 == hashlib.sha256(content).hexdigest()
    assert given_labels.transferred(config, finished_run) == config
    one = given_labels.transferred(unlabelled(small_config), finished_run / "labels.csv", heads=(1,))
    assert (one.model.num_clusters, one.label.label_heads) == ((7,), (1,))
    for counts in ((5, 7), (7,)):  # a config may have the clusters of the whole file, or of the heads chosen
        told = replace(unlabelled(small_config), model=Model(num_clusters=counts))
        assert given_labels.transferred(told, finished_run, heads=(1,)).model.num_clusters == (7,)


def test_a_run_is_trained_on_exactly_the_labels_it_was_given(retrained, finished_run):
    folder, config = retrained
    first, second = (label_files.read(run / "labels.csv") for run in (finished_run, folder))
    np.testing.assert_array_equal(second.labels, first.labels[:, [1, 0]])
    assert second.num_clusters == config.model.num_clusters == (7, 5)
    records = read_records(folder / "metrics.jsonl")
    assert [(r["step"], r["head"]) for r in records if r["kind"] == "labels"] == [(0, 0), (0, 1)]
    assert configs.read(folder / "config.json") == config
    copy = (folder / "given_labels.csv").read_bytes()
    assert hashlib.sha256(copy).hexdigest() == config.label.labels_sha256


def test_every_epoch_logs_the_loss_of_each_objective_and_the_rotation_accuracy(retrained):
    epochs = [r for r in read_records(retrained[0] / "metrics.jsonl") if r["kind"] == "epoch"]
    assert len(epochs) == 3
    for record in epochs:
        assert record["loss"] == pytest.approx(record["labels_loss"] + record["rotation_loss"], rel=1e-5)
        assert 0 <= record["rotation_accuracy"] <= 1
    assert epochs[-1]["loss"] < epochs[0]["loss"]


def test_a_cut_run_goes_on_without_the_run_its_labels_came_from(tmp_path, retrained, finished_run, small_config):
    source = tmp_path / "first"
    shutil.copytree(finished_run, source)
    begun = given_labels.transferred(unlabelled(small_config), source, heads=(1, 0))
    with pytest.raises(KeyboardInterrupt):
        experiment.run(begun, tmp_path / "cut", watcher=experiment.Watcher(callbacks=(Kill(),)))
    shutil.rmtree(source)
    again = given_labels.transferred(unlabelled(small_config), source, heads=(1, 0), workdir=tmp_path / "cut")
    assert again == begun
    experiment.run(again, tmp_path / "cut")
    whole, cut = (read_records(folder / "metrics.jsonl") for folder in (retrained[0], tmp_path / "cut"))
    for ours, theirs in zip(whole, cut, strict=True):  # two runs with the same seed, one of them cut, agree
        for name in ours.keys() - set(TIMING):
            exact = not isinstance(theirs[name], float)
            assert ours[name] == (theirs[name] if exact else pytest.approx(theirs[name], rel=1e-4)), name
    ours, theirs = (load_run(folder).model for folder in (retrained[0], tmp_path / "cut"))
    for one, other in zip(ours.variables, theirs.variables, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_labels_go_from_one_architecture_to_a_smaller_other_one(tmp_path, retrained, finished_run, small_config):
    config = unlabelled(small_config, epochs=1)
    config = replace(config, model=replace(config.model, backbone="resnet18_cifar", width=2))
    config = given_labels.transferred(config, finished_run)
    experiment.run(config, tmp_path / "run")
    run, theirs = load_run(tmp_path / "run"), label_files.read(finished_run / "labels.csv")
    np.testing.assert_array_equal(run.model.labels, theirs.labels)
    backbones = [model.backbone for model in (run.model, load_run(finished_run).model)]
    assert [network.output_shape[-1] for network in backbones] == [16, 512]
    assert backbones[0].count_params() < backbones[1].count_params()


def test_two_replicas_retrain_too_and_a_cut_run_goes_on_with_them(
    tmp_path, finished_run, small_config, two_replicas, monkeypatch
):
    monkeypatch.setattr(distribution, "strategy", lambda devices: two_replicas)  # a process may have only one
    config = given_labels.transferred(unlabelled(small_config, batch_size=24), finished_run)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(config, tmp_path / "run", watcher=experiment.Watcher(callbacks=(Kill(),)))
    said = []
    experiment.run(config, tmp_path / "run", devices="two", watcher=experiment.Watcher(say=said.append))
    assert any(line.endswith("2 device(s)") for line in said)
    first, second = (label_files.read(run / "labels.csv") for run in (finished_run, tmp_path / "run"))
    np.testing.assert_array_equal(second.labels, first.labels)
    epochs = [r for r in read_records(tmp_path / "run" / "metrics.jsonl") if r["kind"] == "epoch"]
    assert [record["epoch"] for record in epochs] == [1, 2, 3]
    assert epochs[-1]["loss"] < epochs[0]["loss"]
    assert epochs[-1]["loss"] == pytest.approx(epochs[-1]["labels_loss"] + epochs[-1]["rotation_loss"], rel=1e-5)


def test_a_damaged_copy_of_the_labels_is_noticed(tmp_path, retrained):
    shutil.copytree(retrained[0], tmp_path / "run")
    copy = tmp_path / "run" / "given_labels.csv"
    lines = copy.read_text().splitlines()
    index, name, label, rest = lines[-1].split(",", 3)
    copy.write_text("\n".join([*lines[:-1], ",".join([index, name, str((int(label) + 1) % 5), rest])]) + "\n")
    source = assembly.make_source(retrained[1])
    with pytest.raises(ValueError, match="is not the labels file that this run was made for: its sha256 is"):
        given_labels.read(retrained[1], source, tmp_path / "run")


def test_other_labels_in_the_same_place_are_other_settings(tmp_path, retrained, finished_run):
    folder, config = retrained
    source = tmp_path / "first"
    shutil.copytree(finished_run, source)
    moved = replace(config, label=replace(config.label, labels=str(source)))
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text(configs.to_json(moved))
    text = (source / "labels.csv").read_text()
    (source / "labels.csv").write_text(text.replace("config_hash: ", "config_hash: 0"))
    changed = given_labels.transferred(moved, source, heads=(1, 0), workdir=tmp_path / "run")
    with pytest.raises(ValueError, match=r"label\.labels_sha256: "):
        experiment.run(changed, tmp_path / "run")


def test_labels_that_were_written_anew_are_still_the_same_and_so_is_the_copy_of_labels_that_are_gone(
    tmp_path, retrained, finished_run
):
    folder, config = retrained
    source = shutil.copytree(finished_run, tmp_path / "first")
    labels = label_files.read(source / "labels.csv")
    sure = label_files.Confidence(
        np.full(labels.labels.shape, 0.5, np.float32), (labels.labels + 1) % 5, np.full(labels.labels.shape, 0.25, "f4")
    )
    label_files.write(source / "labels.csv", replace(labels, confidence=sure))  # as tools.labels does
    again = given_labels.transferred(config, source, heads=(1, 0), workdir=folder)
    assert again.label.labels_sha256 == config.label.labels_sha256
    assert given_labels.transferred(config, source, heads=(1, 0)).label.labels_sha256 != config.label.labels_sha256
    (source / "labels.csv").unlink()
    again = given_labels.transferred(config, source, heads=(1, 0), workdir=folder)
    assert again.label.labels_sha256 == config.label.labels_sha256


def _without_row(text):
    lines = text.splitlines(keepends=True)
    return "".join(lines[:20] + lines[21:])


def _out_of_range(text):
    head, _, last = text.rstrip("\n").rpartition("\n")
    index, name, _, rest = last.split(",", 3)
    return f"{head}\n{index},{name},5,{rest}\n"


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (_without_row, {}, "rows are missing or not in index order"),
        (lambda text: text[: len(text) // 2], {}, "cut off|is damaged"),
        (_out_of_range, {}, "label 5 of index 59, head 0 is out of range. That head has 5 clusters"),
        (lambda text: "no labels at all\n", {}, "is not a labels file"),
        (lambda text: "\0\xff" * 99, {}, "is not a labels file"),
        (lambda text: text, {"heads": (0, 2)}, "has no head 2: it has 2, 0 to 1"),
        (lambda text: text, {"model": Model(num_clusters=(5, 11))}, r"num_clusters=\(5, 11\) and the heads of .* 5 7"),
        (lambda text: text, {"data": Data(source="digits", examples_per_class=5)}, "a labels file of another dataset"),
    ],
    ids=["hole", "cut", "range", "text", "binary", "head", "count", "dataset"],
)
def test_labels_that_do_not_fit_are_refused_and_nothing_is_written(
    tmp_path, small_config, finished_run, change, options, message
):
    path = tmp_path / "labels.csv"
    path.write_text(change((finished_run / "labels.csv").read_text()))
    heads = options.pop("heads", ())
    with pytest.raises(ValueError, match=message):
        config = replace(unlabelled(small_config), **options)
        experiment.run(given_labels.transferred(config, path, heads), tmp_path / "run")
    assert [entry.name for entry in tmp_path.iterdir()] == ["labels.csv"]


def test_labels_that_are_not_there_are_refused(tmp_path, small_config):
    with pytest.raises(FileNotFoundError, match="There is no labels file"):
        given_labels.transferred(unlabelled(small_config), tmp_path / "nothing.csv")
    with pytest.raises(ValueError, match=r"holds no labels\.csv: it is no run folder, its run is not finished, or"):
        given_labels.transferred(unlabelled(small_config), tmp_path)
    with pytest.raises(ValueError, match=r"model\.num_clusters is empty: as many clusters as the labels have"):
        experiment.run(unlabelled(small_config), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_ids_are_compared_one_by_one(retrained):
    source = assembly.make_source(retrained[1])
    fingerprint = source.fingerprint
    other = type("Source", (), {"ids": ("x", *source.ids[1:]), "fingerprint": fingerprint, "name": "others"})
    with pytest.raises(ValueError, match=r"labels for '.+' at index 0, where others has 'x'"):
        given_labels.read(retrained[1], other)


def test_parquet_labels_serve_as_well(tmp_path, small_config, finished_run):
    labels = label_files.read(finished_run / "labels.csv")
    label_files.write(tmp_path / "labels.parquet", labels)
    config = given_labels.transferred(unlabelled(small_config), tmp_path / "labels.parquet")
    found = given_labels.read(config, assembly.make_source(config))
    np.testing.assert_array_equal(found, labels.labels)
    given_labels.keep(config, tmp_path)
    assert (tmp_path / "given_labels.parquet").is_file()


def test_rotation_beside_self_labelling_is_judged_on_training_and_on_held_out_images(tmp_path, small_config, small_voc):
    config = small_config(
        data=Data(source="tfds", name="voc/2007", test_split="test", data_dir=str(small_voc)),
        augment=replace(small_config().augment, policy="crop_flip", size=16),
        model=Model(num_clusters=(3, 5), objectives=("labels", "rotation")),
        evaluation=Evaluation(knn=False, kmeans=False),
        batch_size=12,
        epochs=2,
    )
    experiment.run(config, tmp_path / "run")
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    passes = [(r["step"], r["head"]) for r in records if r["kind"] == "labels"]
    assert passes == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]  # labels are optimised all the same
    found = {kind: [r for r in records if r["kind"] == kind] for kind in ("epoch", "rotation")}
    assert [r["step"] for r in found["epoch"]] == [r["step"] for r in found["rotation"]] == [2, 4]
    for epoch, held_out in zip(found["epoch"], found["rotation"], strict=True):
        assert epoch["loss"] == pytest.approx(epoch["labels_loss"] + epoch["rotation_loss"], rel=1e-5)
        assert 0 <= epoch["rotation_accuracy"] <= 1 and 0 <= held_out["accuracy"] <= 1 and held_out["loss"] > 0
    model = load_run(tmp_path / "run").model
    ((images, _),) = assembly.make_source(config, "test").plain_batches(29)
    four = np.concatenate([np.rot90(images, turn, axes=(1, 2)) for turn in range(4)])
    told = np.argmax(model.objectives["rotation"].head(model.backbone(four, training=False))[0], axis=1)
    assert found["rotation"][-1]["accuracy"] == pytest.approx(np.mean(told == np.repeat(range(4), 29)), abs=1e-6)


def test_a_run_on_rotation_alone_has_features_and_no_labels(tmp_path, small_config):
    config = small_config(
        model=Model(num_clusters=(5,), objectives=("rotation",)),
        label=Label(num_relabels=0),
        evaluation=QUICK,
        epochs=1,
    )
    result = experiment.run(config, tmp_path / "run")
    assert [row["what"] for row in result.numbers["knn"]] == ["raw pixels", "random weights", "learned features"]
    assert [table.title for table in result.tables] == ["Weighted nearest neighbours"]
    assert not (tmp_path / "run" / "labels.csv").exists()
    (record,) = read_records(tmp_path / "run" / "metrics.jsonl")
    assert {"loss", "rotation_accuracy"} < set(record)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["facts"]["epochs"] == 1
    assert list(load_run(tmp_path / "run").model.objectives) == ["rotation"]
