"""Runs that are stopped, damaged, moved or poisoned, and what becomes of them. Bits: test_tools_killed.py."""

import hashlib
import json
import os
import resource
import shutil
import signal
import threading
import time
from dataclasses import replace

import keras
import numpy as np
import pytest

from selabel_tf.config import Augment, Data, Evaluation, Label, Model
from selabel_tf.export import labels as label_files
from selabel_tf.training import checkpoints, distribution, experiment, resuming
from selabel_tf.training.interruption import Interrupted
from selabel_tf.training.run_lock import locked
from selabel_tf.training.run_log import TIMING, read_records
from selabel_tf.training.trained_run import load_run

NOTHING = Evaluation(knn=False, kmeans=False, knn_k=5)


@pytest.fixture(autouse=True)
def seeds_only(monkeypatch):
    monkeypatch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)


class At(keras.callbacks.Callback):
    """Does something before a training step."""

    def __init__(self, step, do):
        super().__init__()
        self.step, self.do = step, do

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.epoch * self.params["steps"] + batch == self.step:
            self.do(self.model)


def stop(*_):
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def cut(tmp_path_factory, small_config):
    """(folder, config) of a run that got SIGTERM in the middle of its second epoch, at its fifth step."""
    folder = tmp_path_factory.mktemp("runs") / "cut"
    config = small_config(evaluation=NOTHING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
        with pytest.raises(Interrupted, match="Stopped by SIGTERM"):
            experiment.run(config, folder, watcher=experiment.Watcher(callbacks=(At(4, stop),)))
    return folder, config


def edit(checkpoint, change):
    """Changes the facts of a checkpoint as if they had been written so."""
    manifest, sums = checkpoint / "manifest.json", checkpoint / checkpoints.SUMS
    before = hashlib.sha256(manifest.read_bytes()).hexdigest()
    content = json.loads(manifest.read_text())
    change(content["facts"])
    manifest.write_text(json.dumps(content))
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(manifest.read_bytes()).hexdigest()))


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def goes_on(config, folder):
    """Resumes the run; what it said."""
    said = []
    experiment.run(config, folder, watcher=experiment.Watcher(say=said.append))
    return next(text for text in said if text.startswith("Resuming"))


def events(folder):
    """What TensorBoard shows: [(step, tag)]."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(folder / "logs"), size_guidance={"tensors": 0})
    shown.Reload()
    return sorted((event.step, tag) for tag in shown.Tags()["tensors"] for event in shown.Tensors(tag))


def assert_same_end(ours, theirs):
    for one, other in zip(*(read_records(f / "metrics.jsonl") for f in (ours, theirs)), strict=True):
        assert one.keys() == other.keys()
        for key in one.keys() - set(TIMING):
            wanted = pytest.approx(other[key], rel=1e-4, abs=1e-6) if isinstance(other[key], float) else other[key]
            assert one[key] == wanted, key
    assert events(ours) == events(theirs)
    one, other = (checkpoints.latest(f / "checkpoints") for f in (ours, theirs))
    own = dict.fromkeys(("config_hash", *TIMING))
    assert {**one.facts, **own} == {**other.facts, **own}
    one, other = (label_files.read(f / "labels.csv").labels for f in (ours, theirs))
    np.testing.assert_array_equal(one, other)


def test_a_signal_is_followed_by_a_checkpoint_after_the_very_step(cut):
    folder, _ = cut
    assert names(folder)[-1] == "step-00000005-labels-0002"
    facts = checkpoints.latest(folder / "checkpoints").facts
    assert (facts["epoch"], facts["batch"], facts["step"], facts["label_passes"]) == (1, 2, 5, 2)
    assert not (folder / ".lock").exists()
    assert not experiment.is_finished(folder)


def test_a_run_cut_within_an_epoch_goes_on_to_the_same_end(cut, finished_run, tmp_path):
    folder = shutil.copytree(cut[0], tmp_path / "copy")
    said = goes_on(cut[1], folder)
    assert said.startswith("Resuming at step 5 (epoch 2, batch 3), after 2 label passes, from ")
    assert_same_end(finished_run, folder)


def test_what_an_epoch_took_before_it_was_cut_is_counted_and_what_came_between_is_not(cut, tmp_path):
    folder = shutil.copytree(cut[0], tmp_path / "copy")
    (newest,) = folder.glob("checkpoints/step-00000005-*")
    taken = checkpoints.latest(folder / "checkpoints").facts["seconds"]
    assert taken > 0
    edit(newest, lambda facts: facts.update(seconds=taken + 100))
    begun = time.perf_counter()
    goes_on(cut[1], folder)
    later = time.perf_counter() - begun
    _, second, third = [r["seconds"] for r in read_records(folder / "metrics.jsonl") if r["kind"] == "epoch"]
    assert 100 + taken < second < 100 + taken + later
    assert 0 < third < later


def test_a_checkpoint_that_tells_no_time_serves_as_well(cut, tmp_path):  # one of an earlier version
    folder = shutil.copytree(cut[0], tmp_path / "copy")
    for path in folder.glob("checkpoints/*"):
        edit(path, lambda facts: facts.pop("seconds"))
    assert goes_on(cut[1], folder).startswith("Resuming at step 5")


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_serves(cut, finished_run, tmp_path):
    folder = shutil.copytree(cut[0], tmp_path / "copy")
    state = folder / "checkpoints" / "step-00000005-labels-0002" / "state.npz"
    data = bytearray(state.read_bytes())
    data[len(data) // 3] ^= 4
    state.write_bytes(data)
    with pytest.warns(UserWarning, match="Passing over checkpoint .*step-00000005.*: its state.npz fails the checksum"):
        said = goes_on(cut[1], folder)
    assert said.startswith("Resuming at step 3 (epoch 2, batch 1), after 2 label passes")
    assert_same_end(finished_run, folder)


def test_where_all_checkpoints_are_damaged_nothing_begins_anew(cut, tmp_path):
    folder = shutil.copytree(cut[0], tmp_path / "copy")
    for path in folder.glob("checkpoints/*/state.npz"):
        path.write_bytes(b"")
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match="No checkpoint is whole"):
        experiment.run(cut[1], folder)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_a_signal_within_a_label_pass_abandons_it(tmp_path, small_config, finished_run):
    sent = []

    def progress(number, what, done, total):
        if number == 1 and what.startswith("head 1") and not sent:  # head 0 has its new labels already
            sent.append(stop())  # once: a second signal would not be waited with

    config = small_config(evaluation=NOTHING)
    with pytest.raises(Interrupted):
        experiment.run(config, tmp_path / "run", watcher=experiment.Watcher(on_progress=progress))
    assert names(tmp_path / "run")[-1] == "step-00000003-labels-0001"
    goes_on(config, tmp_path / "run")
    assert_same_end(finished_run, tmp_path / "run")


def test_steps_without_a_checkpoint_are_at_most_as_many_as_the_config_says(tmp_path, small_config, monkeypatch):
    saved, save = [], checkpoints.save
    monkeypatch.setattr(checkpoints, "save", lambda *a, **o: saved.append(save(*a, **o).path.name) or save(*a, **o))
    config = small_config(
        evaluation=NOTHING, checkpoint_steps=2, checkpoint_every=3, batch_size=12, label=Label(num_relabels=1)
    )
    experiment.run(config, tmp_path / "run")  # five steps an epoch
    assert [int(name[5:13]) for name in saved] == [0, 2, 4, 6, 8, 10, 12, 14, 15]
    assert len(names(tmp_path / "run")) == 3


def limit_files(size):
    """From now on no file may grow beyond `size` bytes; what undoes it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    return lambda: (resource.setrlimit(resource.RLIMIT_FSIZE, before), signal.signal(signal.SIGXFSZ, handler))


def test_a_run_that_finds_no_room_ends_clearly_and_goes_on_when_there_is(tmp_path, small_config, finished_run):
    config, folder, undo = small_config(evaluation=NOTHING), tmp_path / "run", []
    watcher = experiment.Watcher(callbacks=(At(2, lambda _: undo.append(limit_files(100_000))),))
    try:
        with pytest.raises(
            OSError, match=r"step-00000003-labels-0001 could not be written: .* step-0{8}-labels-0001 is"
        ):
            experiment.run(config, folder, watcher=watcher)
    finally:
        undo[0]()
    assert names(folder) == ["step-00000000-labels-0001"]
    assert goes_on(config, folder).startswith("Resuming at step 0 (epoch 1, batch 1), after 1 label passes")
    assert_same_end(finished_run, folder)


def test_a_log_that_lost_records_is_told(cut, tmp_path):
    folder = shutil.copytree(cut[0], tmp_path / "copy")
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:1]))
    said = []
    experiment.run(cut[1], folder, watcher=experiment.Watcher(say=said.append))
    (told,) = [text for text in said if "metrics.jsonl" in text]
    assert f"metrics.jsonl has 1 records, and had {len(lines)} when the checkpoint was written" in told


def poison(model):
    model.heads.bias.assign(np.full(12, np.nan))


def test_a_loss_that_is_no_number_ends_the_run_at_that_step(tmp_path, small_config):
    config = small_config(label=Label(num_relabels=1), checkpoint_steps=2)
    message = (
        r"The loss is nan at step 6 \(epoch 2, learning rate 0\.05\): training has diverged\. The last good checkpoint "
        r"is .*step-00000005-labels-0001, after step 5\. .*lower optimizer\.learning_rate"
    )
    with pytest.raises(ValueError, match=message):
        experiment.run(config, tmp_path / "run", watcher=experiment.Watcher(callbacks=(At(5, poison),)))
    good = load_run(tmp_path / "run")
    assert good.checkpoint.facts["step"] == 5
    assert all(np.isfinite(variable.numpy()).all() for variable in good.model.trainable_variables)


def test_weights_that_went_bad_under_a_finite_loss_are_never_saved(tmp_path, small_config):
    def overflow(model):
        model.optimizer.variables[-1].assign(np.full(12, np.inf))

    config = small_config(label=Label(num_relabels=1), checkpoint_steps=1)
    with pytest.raises(ValueError, match=r"The loss is finite, but .* is not finite at step 5 \(epoch 2"):
        experiment.run(config, tmp_path / "run", watcher=experiment.Watcher(callbacks=(At(4, overflow),)))
    assert names(tmp_path / "run")[-1] == "step-00000004-labels-0001"


def test_divergence_before_the_first_checkpoint_says_that_there_is_none(tmp_path, small_config):
    config = small_config(label=Label(num_relabels=0))
    with pytest.raises(ValueError, match=r"nan at step 1 .*There is no checkpoint yet\."):
        experiment.run(config, tmp_path / "run", watcher=experiment.Watcher(callbacks=(At(0, poison),)))


def test_other_images_are_refused_with_what_differs(tmp_path, small_config):
    (tmp_path / "images").mkdir()
    for number in range(13):
        picture = np.random.default_rng(number).random((16, 16, 3))
        keras.utils.save_img(tmp_path / "images" / f"{number}.png", picture)
    config = small_config(
        data=Data(source="folder", path=str(tmp_path / "images")),
        augment=Augment(),
        model=Model(num_clusters=(3,)),
        evaluation=NOTHING,
        batch_size=5,
    )
    with pytest.raises(Interrupted):
        experiment.run(config, tmp_path / "run", watcher=experiment.Watcher(callbacks=(At(1, stop),)))
    (tmp_path / "images" / "7.png").rename(tmp_path / "7.png")
    with pytest.raises(
        ValueError, match=r"is of another run:\n  images.num_examples: 13 -> 12\n  images.fingerprint: "
    ):
        experiment.run(config, tmp_path / "run")
    (tmp_path / "7.png").rename(tmp_path / "images" / "8a.png")
    with pytest.raises(ValueError, match=r"is of another run:\n  images.fingerprint: \w+ -> \w+\nIts labels"):
        experiment.run(config, tmp_path / "run")


def test_how_a_run_is_judged_may_change_until_it_is_finished(cut, tmp_path):
    folder, judged = tmp_path / "run", replace(cut[1], evaluation=replace(NOTHING, knn=True))
    shutil.copytree(cut[0], folder)
    assert goes_on(judged, folder).startswith("Resuming at step 5 ")
    assert experiment.configs.read(folder / "config.json") == judged
    assert "knn" in json.loads((folder / "results.json").read_text())["numbers"]
    with pytest.raises(
        ValueError, match=r"other settings:\n  evaluation.knn: True -> False\nIt is finished.*tools.knn"
    ):
        experiment.run(cut[1], folder)
    with pytest.raises(ValueError, match=r"  epochs: 3 -> 99\nResume it with the settings it was begun with"):
        experiment.run(replace(cut[1], epochs=99), folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_clusters": (5, 11)}, r"model.num_clusters: \[5, 7\] -> \[5, 11\]"),
        ({"num_clusters": (5, 7, 7)}, r"model.num_clusters: \[5, 7\] -> \[5, 7, 7\]"),
        ({"backbone": "resnet18"}, r"model.backbone: small_conv -> resnet18"),
    ],
)
def test_another_network_is_refused_with_what_differs(cut, tmp_path, changes, message):
    config = replace(cut[1], model=replace(cut[1].model, **changes))
    with pytest.raises(ValueError, match=rf"other settings:\n  {message.split(':')[0]}"):
        experiment.run(config, cut[0])
    shutil.copytree(cut[0] / "checkpoints", tmp_path / "run" / "checkpoints")  # as if of this run
    (tmp_path / "run" / "config.json").write_text(experiment.configs.to_json(config))
    with pytest.raises(ValueError, match=rf"is of another run:\n  {message}\n"):
        experiment.run(config, tmp_path / "run")


def test_scores_are_stored_as_when_the_run_began(cut):
    checkpoint = checkpoints.latest(cut[0] / "checkpoints")
    begun = replace(checkpoint, facts={**checkpoint.facts, "storage": "half"})
    assert resuming.as_begun(cut[1], begun).label.storage == "half"
    for kind in ("float32", "recompute", "disk"):  # of the same bits: whichever fits now
        begun = replace(checkpoint, facts={**checkpoint.facts, "storage": kind})
        assert resuming.as_begun(cut[1], begun).label.storage == "exact"
    chosen = replace(cut[1], label=replace(cut[1].label, storage="disk"))
    assert resuming.as_begun(chosen, begun).label.storage == "disk"
    assert resuming.as_begun(cut[1], None) == cut[1]


def test_a_second_run_in_the_folder_is_refused(cut):
    before = (cut[0] / "metrics.jsonl").read_bytes()
    with locked(cut[0]), pytest.raises(ValueError, match="is in use"):
        experiment.run(cut[1], cut[0])
    assert (cut[0] / "metrics.jsonl").read_bytes() == before


def test_a_kill_while_the_folder_is_claimed_does_not_block_it(tmp_path, small_config):
    (tmp_path / ".lock").write_text('{"pid": 1, "host": "gone"}')
    (tmp_path / ".0123456789abcdef.tmp").write_text("half of a conf")
    (tmp_path / "checkpoints").mkdir()
    config = small_config(epochs=0, label=Label(num_relabels=0), evaluation=NOTHING)
    with pytest.raises(ValueError, match="holds no run of ours"):
        experiment.run(config, tmp_path)
    (tmp_path / "checkpoints").rmdir()
    experiment.run(config, tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_an_image_that_vanishes_in_the_middle_is_named(tmp_path, small_config):
    (tmp_path / "images").mkdir()
    for number in range(7):
        picture = np.random.default_rng(number).random((16, 16, 3))
        keras.utils.save_img(tmp_path / "images" / f"{number}.png", picture)
    config = small_config(
        data=Data(source="folder", path=str(tmp_path / "images")),
        model=Model(num_clusters=(3,)),
        augment=Augment(),
        evaluation=NOTHING,
    )
    vanish = At(2, lambda _: (tmp_path / "images" / "3.png").unlink())
    with pytest.raises(OSError, match=r"3\.png") as told:
        experiment.run(config, tmp_path / "run", watcher=experiment.Watcher(callbacks=(vanish,)))
    assert "\n" not in str(told.value)


def test_readers_see_a_whole_checkpoint_while_the_run_writes_and_removes(finished_run, tmp_path):
    folder = shutil.copytree(finished_run, tmp_path / "run")
    writer, reader = load_run(folder), []
    done = threading.Event()

    def train():
        step = 9
        while not done.is_set():
            step += 1
            writer.model.heads.bias.assign(np.full(12, step))
            checkpoints.save(folder / "checkpoints", writer.model, {**writer.checkpoint.facts, "step": step}, keep=1)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(3):
            run = load_run(folder)
            reader.append(run.checkpoint.facts["step"])
            assert reader[-1] == 9 or set(run.model.heads.bias.numpy()) == {reader[-1]}
        while len(set(reader)) < 20:
            reader.append(checkpoints.latest(folder / "checkpoints").facts["step"])
    finally:
        done.set()
        thread.join()
    assert reader == sorted(reader)
