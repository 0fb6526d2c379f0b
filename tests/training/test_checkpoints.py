"""A run resumed from a checkpoint goes on as if nothing had happened; a torn checkpoint is never trusted."""

import errno
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import warnings
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from selabel_tf.training import checkpoints

X = np.random.default_rng(1).normal(size=(23, 5)).astype("float32")
Y = np.random.default_rng(2).normal(size=(23, 3)).astype("float32")


class WithLabels(keras.Model):
    """BatchNorm, Dropout and a non-trainable int64 weight, as a self-labelled model has."""

    def __init__(self, units=7):
        super().__init__()
        inputs = keras.Input((5,))
        hidden = keras.layers.Dense(units, activation="relu")(inputs)
        hidden = keras.layers.BatchNormalization()(hidden)
        hidden = keras.layers.Dropout(0.5)(hidden)
        self.net = keras.Model(inputs, keras.layers.Dense(3)(hidden))
        self.labels = self.add_weight(shape=(23, 2), dtype="int64", initializer="zeros", trainable=False, name="labels")
        self.built = True

    def call(self, x, training=False):
        return self.net(x, training=training)


def make(units=7, optimizer=None):
    model = WithLabels(units)
    model.compile(optimizer or keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    return model


def at(step, label_passes=0, **facts):
    return {"step": step, "label_passes": label_passes, **facts}


def name(step, label_passes=0):
    return f"step-{step:08d}-labels-{label_passes:04d}"


def train(model, epochs):
    model.fit(X, Y, batch_size=11, epochs=epochs, shuffle=False, verbose=0)


def state(model):
    return [v.numpy() for v in [*model.variables, *model.optimizer.variables]]


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_training_after_a_restore_equals_training_without_a_stop(tmp_path):
    model = make()
    model.labels.assign(np.arange(46).reshape(23, 2))
    train(model, 2)
    checkpoints.save(tmp_path, model, at(6))
    saved = state(model)
    train(model, 2)

    resumed = make()  # other weights, other seeds, and other running numbers in its names
    checkpoint = checkpoints.latest(tmp_path)
    assert checkpoint.facts == at(6)
    checkpoints.restore(checkpoint, resumed)
    for ours, theirs in zip(state(resumed), saved, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    train(resumed, 2)
    assert_same(state(resumed), state(model))


def test_the_seed_state_of_dropout_is_part_of_the_state(tmp_path):
    checkpoint = checkpoints.save(tmp_path, make(), at(1))
    assert [v["name"] for v in checkpoint.variables if "seed" in v["name"]] == ["seed_generator/seed_generator_state"]


def test_a_model_that_has_already_trained_is_restored_too(tmp_path):
    model = make()
    train(model, 1)
    checkpoint = checkpoints.save(tmp_path, model, at(1))
    saved = state(model)
    train(model, 1)
    checkpoints.restore(checkpoint, model)
    assert_same(state(model), saved)
    train(model, 1)


def test_under_a_strategy_every_replica_gets_the_saved_values(tmp_path, two_replicas):
    with two_replicas.scope():
        model = make()
        resumed = make()
    model.labels.assign(np.arange(46).reshape(23, 2))
    checkpoints.save(tmp_path, model, at(2))  # builds the optimizer where `fit` has not yet
    model.optimizer.momentums[0].assign(np.full((5, 7), 0.5))
    model.optimizer.iterations.assign(2)
    checkpoints.save(tmp_path, model, at(2))
    checkpoints.restore(checkpoints.latest(tmp_path), resumed)
    assert_same(state(resumed), state(model))
    for variable, value in zip(resumed.variables, [v.numpy() for v in model.variables], strict=True):
        for replica in two_replicas.experimental_local_results(variable.value):
            np.testing.assert_array_equal(replica.numpy(), value)
    resumed.fit(X[:22], Y[:22], batch_size=11 * 2, epochs=1, shuffle=False, verbose=0)
    assert int(resumed.optimizer.iterations.numpy()) == 3


def test_the_state_of_a_loss_scale_is_kept(tmp_path):
    def scaled():
        inner = keras.optimizers.SGD(0.05, momentum=0.9)
        return make(optimizer=keras.optimizers.LossScaleOptimizer(inner, dynamic_growth_steps=2))

    model, resumed = scaled(), scaled()
    train(model, 2)
    checkpoints.save(tmp_path, model, at(2))
    checkpoints.restore(checkpoints.latest(tmp_path), resumed)
    assert float(resumed.optimizer.dynamic_scale.numpy()) == float(model.optimizer.dynamic_scale.numpy()) > 2**15
    assert_same(state(resumed), state(model))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int32", "uint8", "bool"])
def test_every_dtype_comes_back_bit_by_bit(tmp_path, dtype):
    def typed():
        model = make()
        model.extra = model.add_weight(shape=(3,), dtype=dtype, initializer="zeros", trainable=False, name="extra")
        return model

    model, resumed = typed(), typed()
    model.extra.assign(np.array([0, 1, 3]).astype(model.extra.numpy().dtype))
    checkpoints.save(tmp_path, model, at(1))
    checkpoints.restore(checkpoints.latest(tmp_path), resumed)
    assert resumed.extra.numpy().dtype == model.extra.numpy().dtype
    assert resumed.extra.numpy().tobytes() == model.extra.numpy().tobytes()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_only_the_last_ones_are_kept(tmp_path):
    model = make()
    for step in (7, 9, 10, 11):
        checkpoints.save(tmp_path, model, at(step))
    assert names(tmp_path) == [name(9), name(10), name(11)]
    checkpoints.save(tmp_path, model, at(12), keep=1)
    assert names(tmp_path) == [name(12)]


def test_before_and_after_a_label_pass_are_two_states_of_one_step(tmp_path):
    model = make()
    for label_passes in (3, 4):
        checkpoints.save(tmp_path, model, at(10, label_passes))
    checkpoints.save(tmp_path, model, at(9, 3), keep=1)  # it comes before both, which are given up
    assert names(tmp_path) == [name(9, 3)]
    for label_passes in (9, 10):
        checkpoints.save(tmp_path, model, at(10, label_passes))
    assert checkpoints.latest(tmp_path).facts == at(10, 10)


def test_steps_beyond_eight_digits_are_ordered_by_number_and_other_files_left_alone(tmp_path):
    model = make()
    (tmp_path / "step-notes").mkdir()
    for step in (99_999_999, 100_000_000):
        checkpoints.save(tmp_path, model, at(step))
    assert checkpoints.latest(tmp_path).facts["step"] == 100_000_000
    assert names(tmp_path) == [name(100_000_000), name(99_999_999), "step-notes"]


def test_the_same_state_gives_the_same_bytes(tmp_path):
    model = make()
    first = checkpoints.save(tmp_path / "a", model, at(1))
    second = checkpoints.save(tmp_path / "b", model, at(1))
    assert first.sha256 == second.sha256
    assert (first.path / "state.npz").read_bytes() == (second.path / "state.npz").read_bytes()
    assert subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=first.path, capture_output=True).returncode == 0


def test_the_running_metrics_are_part_of_the_state(tmp_path):
    model, resumed = make(), make()
    for value, variable in enumerate(model.metrics_variables, start=5):
        variable.assign(value)
    checkpoints.restore(checkpoints.save(tmp_path, model, at(1)), resumed)
    assert [variable.numpy() for variable in resumed.metrics_variables] == [5, 6]


def test_a_later_torn_checkpoint_does_not_push_out_the_one_just_written(tmp_path):
    model = make()
    (tmp_path / name(9)).mkdir(parents=True)
    checkpoints.save(tmp_path, model, at(5), keep=1)
    assert names(tmp_path) == [name(5)]


def test_an_earlier_torn_checkpoint_does_not_push_out_a_good_one(tmp_path):
    model = make()
    for step in (1, 2):
        checkpoints.save(tmp_path, model, at(step))
    (tmp_path / name(2) / "state.npz").write_bytes(b"torn")
    checkpoints.save(tmp_path, model, at(3), keep=2)
    assert names(tmp_path) == [name(1), name(3)]


def test_a_torn_one_of_the_same_name_is_replaced(tmp_path):
    model = make()
    checkpoints.save(tmp_path, model, at(1))
    cut(tmp_path / name(1) / "state.npz")
    checkpoints.save(tmp_path, model, at(1))
    assert checkpoints.latest(tmp_path).facts == at(1)
    assert names(tmp_path) == [name(1)]


def test_without_a_checkpoint_there_is_none(tmp_path):
    assert checkpoints.latest(tmp_path / "nowhere") is None
    assert checkpoints.latest(tmp_path) is None


def test_a_whole_checkpoint_is_taken_without_a_warning(tmp_path):
    checkpoints.save(tmp_path, make(), at(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.latest(tmp_path).path.name == name(3)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    """One bit in the middle, as disks do it."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def seal(folder):
    """Checksums that fit whatever the files hold now."""
    sums = [(hashlib.sha256((folder / file).read_bytes()).hexdigest(), file) for file in ("state.npz", "manifest.json")]
    (folder / "SHA256SUMS").write_text("".join(f"{digest}  {file}\n" for digest, file in sums))


def foreign(folder):
    (folder / "manifest.json").write_text("[]")
    seal(folder)


TEARS = [
    ("it has no manifest.json", lambda folder: (folder / "manifest.json").unlink()),
    ("it has no state.npz", lambda folder: (folder / "state.npz").unlink()),
    ("it has no SHA256SUMS", lambda folder: (folder / "SHA256SUMS").unlink()),
    ("its manifest.json fails the checksum", lambda folder: cut(folder / "manifest.json")),
    ("its manifest.json fails the checksum", lambda folder: flip(folder / "manifest.json")),
    ("its state.npz fails the checksum", lambda folder: cut(folder / "state.npz")),
    ("its state.npz fails the checksum", lambda folder: flip(folder / "state.npz")),
    ("its SHA256SUMS cannot be read", lambda folder: (folder / "SHA256SUMS").write_bytes(b"")),
    ("its (state.npz|manifest.json) fails the checksum", lambda folder: flip(folder / "SHA256SUMS")),
    ("its manifest.json is not one of ours", foreign),
]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A folder of checkpoints after steps 3 and 4."""
    folder = tmp_path_factory.mktemp("checkpoints")
    model = make()
    for step in (3, 4):
        checkpoints.save(folder, model, at(step))
    return folder


@pytest.mark.parametrize(("problem", "tear"), TEARS)
def test_a_torn_checkpoint_is_passed_over_for_the_one_before_with_a_warning(tmp_path, two, problem, tear):
    folder = shutil.copytree(two, tmp_path / "copy")
    tear(folder / name(4))
    with pytest.warns(UserWarning, match=f"Passing over checkpoint .*{name(4)}: {problem}"):
        assert checkpoints.latest(folder).facts == at(3)
    tear(folder / name(3))
    with pytest.raises(ValueError, match=rf"No checkpoint is whole:(?s:.*{name(4)}.*{name(3)}.*)Bring one back"):
        checkpoints.latest(folder)


def test_wherever_a_bit_flips_or_a_file_is_cut_off_it_is_found_out(tmp_path, two):
    folder = shutil.copytree(two, tmp_path / "copy")
    draw, tried = random.Random(7), 0
    for file in ("state.npz", "manifest.json", "SHA256SUMS"):
        path = folder / name(4) / file
        whole = path.read_bytes()
        for _ in range(70):
            at_bit, length = draw.randrange(8 * len(whole)), draw.randrange(len(whole))
            flipped = bytearray(whole)
            flipped[at_bit // 8] ^= 1 << at_bit % 8
            for content in (flipped, whole[:length]):
                path.write_bytes(content)
                with pytest.warns(
                    UserWarning, match=f"Passing over checkpoint .*{name(4)}: .*Taking {name(3)} instead"
                ):
                    assert checkpoints.latest(folder).facts == at(3)
                tried += 1
        path.write_bytes(whole)
    assert tried == 420 and checkpoints.latest(folder).facts == at(4)


def test_a_checkpoint_that_vanishes_while_it_is_read_gives_way_to_a_newer_one(tmp_path, two, monkeypatch):
    folder = shutil.copytree(two, tmp_path / "copy")
    newer = checkpoints.save(tmp_path / "newer", make(), at(5)).path
    verified, seen = checkpoints._verified, []

    def too_late(path):
        if not seen:  # the run goes on: a newer one comes, this one goes
            newer.rename(folder / name(5))
            shutil.rmtree(path)
        seen.append(path.name)
        return verified(path)

    monkeypatch.setattr(checkpoints, "_verified", too_late)
    assert checkpoints.latest(folder).path.name == name(5)
    assert seen == [name(4), name(5)]


def test_checkpoints_of_the_first_version_are_named_and_not_taken_for_none(tmp_path):
    (tmp_path / "epoch-0007").mkdir()
    (tmp_path / "epoch-0007" / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"epoch-0007 is a checkpoint of an earlier version"):
        checkpoints.latest(tmp_path)


class FullDisk:
    """A file that has room for so many bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)

    def __getattr__(self, attribute):
        return getattr(self.file, attribute)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


@pytest.mark.parametrize("room", [0, 500, 3000])
def test_a_full_disk_is_a_clear_error_and_leaves_the_last_checkpoint(tmp_path, monkeypatch, room):
    model = make()
    checkpoints.save(tmp_path, model, at(1))
    opened = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda path, mode="r", **o: FullDisk(opened(path, mode, **o), room))
        with pytest.raises(
            OSError, match=rf"could not be written: No space left on device\. {name(1)} is as it was\. Make room"
        ) as told:
            checkpoints.save(tmp_path, model, at(2))
    assert told.value.errno == errno.ENOSPC
    assert names(tmp_path) == [name(1)]  # nothing half-written
    assert checkpoints.latest(tmp_path).facts == at(1)
    checkpoints.save(tmp_path, model, at(2))
    assert checkpoints.latest(tmp_path).facts == at(2)


def test_a_file_size_limit_of_the_system_is_a_clear_error_too(tmp_path):
    model = make()
    checkpoints.save(tmp_path, model, at(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(OSError, match="could not be written: File too large"):
            checkpoints.save(tmp_path, model, at(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert names(tmp_path) == [name(1)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_file_system_that_is_really_full(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small file system: {mounted.stderr.decode()}")
    try:
        model = make()
        checkpoints.save(disk, model, at(1))
        with pytest.raises(OSError, match="could not be written: No space left on device"):
            for step in range(2, 7):
                checkpoints.save(disk, model, at(step), keep=9)
        last = checkpoints.latest(disk)
        assert names(disk) == [name(step) for step in range(1, last.facts["step"] + 1)]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_all_files_are_forced_to_disk_before_the_name_is_given_and_the_name_after_it(tmp_path, monkeypatch):
    """What a power cut could tear is not seen by killing: the order of the calls is."""
    calls, fsync, rename = [], os.fsync, os.rename

    def forced(descriptor):
        calls.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def renamed(old, new):
        calls.append(f"{Path(old).name} -> {Path(new).name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", forced)
    monkeypatch.setattr(os, "rename", renamed)
    checkpoints.save(tmp_path, make(), at(1))
    part = f".{name(1)}.part"
    files = ["state.npz", "manifest.json", "SHA256SUMS"]
    assert calls == [*files, part, f"{part} -> {name(1)}", tmp_path.name]


@pytest.mark.parametrize("reader", ["of now", "who has listed the folder before"])
def test_at_every_moment_of_a_save_readers_see_one_whole_checkpoint(tmp_path, monkeypatch, reader):
    model, seen, folders = make(), [], checkpoints._folders
    listed = [checkpoints.save(tmp_path, model, at(1)).path]

    def look():
        lists = [listed] if reader != "of now" else []
        with warnings.catch_warnings(), monkeypatch.context() as patch:
            warnings.simplefilter("error")  # of a torn one
            patch.setattr(checkpoints, "_folders", lambda folder: lists.pop() if lists else folders(folder))
            seen.append(checkpoints.latest(tmp_path).facts["step"])

    def watched(function):
        def call(*args, **options):
            look()
            result = function(*args, **options)
            look()
            return result

        return call

    for function in ("mkdir", "fsync", "rename", "unlink", "rmdir"):
        monkeypatch.setattr(os, function, watched(getattr(os, function)))
    checkpoints.save(tmp_path, model, at(2), keep=1)
    assert seen == sorted(seen) and set(seen) == {1, 2} and len(seen) > 20


def test_leftovers_of_kills_are_removed(tmp_path):
    model = make()
    checkpoints.save(tmp_path, model, at(1))
    for leftover in (f".{name(2)}.part", f".{name(1)}.gone"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "state.npz").write_bytes(b"half")
    assert checkpoints.latest(tmp_path).facts == at(1)
    checkpoints.remove_leftovers(tmp_path)
    assert names(tmp_path) == [name(1)]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_state_that_is_not_finite_is_not_saved(tmp_path, value):
    model = make()
    checkpoints.save(tmp_path, model, at(1))
    model.optimizer.momentums[0].assign(np.full((5, 7), value))
    with pytest.raises(checkpoints.NotFiniteError, match=r"optimizer/.*kernel_momentum is not finite"):
        checkpoints.save(tmp_path, model, at(2))
    assert names(tmp_path) == [name(1)]


def refused(checkpoint, model, message):
    before = state(model)
    with pytest.raises(ValueError, match=message):
        checkpoints.restore(checkpoint, model)
    for ours, theirs in zip(state(model), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_model_of_another_shape_is_refused_before_anything_is_assigned(tmp_path):
    checkpoint = checkpoints.save(tmp_path, make(7), at(1))
    other = make(11)
    other.optimizer.build(other.trainable_variables)
    refused(
        checkpoint,
        other,
        r"dense/kernel float32 \[5, 7\] where the model has .*\[5, 11\]. Resume with",
    )


def test_a_model_with_more_variables_is_refused(tmp_path):
    checkpoint = checkpoints.save(tmp_path, make(), at(1))
    other = make(optimizer=keras.optimizers.Adam())
    other.optimizer.build(other.trainable_variables)
    refused(checkpoint, other, r"has \d+ variables and the model with its optimizer \d+\. Resume with")


@pytest.mark.parametrize(("key", "value"), [("name", "other/kernel"), ("dtype", "float16")])
def test_another_name_or_dtype_is_refused(tmp_path, key, value):
    model = make()
    path = checkpoints.save(tmp_path, model, at(1)).path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["variables"][-1][key] = value
    path.write_text(json.dumps(manifest))
    seal(path.parent)
    refused(checkpoints.latest(tmp_path), model, f"has .*{value}.* where the model has optimizer/")


def test_an_array_of_another_shape_than_the_manifest_says_is_refused_unread(tmp_path):
    model = make()
    path = checkpoints.save(tmp_path, model, at(1)).path
    with zipfile.ZipFile(path / "state.npz", "w") as archive, archive.open("v00000.npy", "w") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**9)}
        np.lib.format.write_array_header_1_0(file, header)
    seal(path)
    message = (
        r"state\.npz does not hold what its manifest.* says: float32 \[1000000000, 1000000000\] stands in place of"
    )
    refused(checkpoints.latest(tmp_path), model, message)


def test_a_checkpoint_under_another_name_is_not_taken_for_what_its_name_says(tmp_path):
    path = checkpoints.save(tmp_path, make(), at(1)).path
    path.rename(tmp_path / name(2))
    with pytest.raises(
        ValueError, match=rf"No checkpoint is whole:\n .*{name(2)}: its manifest.json is not one of ours"
    ):
        checkpoints.latest(tmp_path)


def test_the_first_checkpoint_that_cannot_be_written_has_none_before_it(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(
        OSError, match=r"could not be written: Input/output error\. There is none before it\. Make room"
    ):
        checkpoints.save(tmp_path, make(), at(1))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"label_passes": 0}, "facts\\['step'\\] must be the number of training steps done, but is None"),
        (at(-1), "training steps done, but is -1"),
        (at(2.0), "training steps done, but is 2.0"),
        (at(True), "training steps done, but is True"),
        (at(1, None), "facts\\['label_passes'\\] must be the number of label passes done"),
    ],
)
def test_facts_without_a_position_are_refused(tmp_path, facts, what):
    with pytest.raises(ValueError, match=what):
        checkpoints.save(tmp_path, make(), facts)


def test_facts_that_are_no_json_are_refused_and_the_last_checkpoint_stays_good(tmp_path):
    model = make()
    checkpoints.save(tmp_path, model, at(1, note="good"))
    with pytest.raises(ValueError, match="JSON compliant"):
        checkpoints.save(tmp_path, model, at(1, note=float("nan")))
    assert checkpoints.latest(tmp_path).facts["note"] == "good"


def test_keeping_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep=0 would remove the checkpoint just written"):
        checkpoints.save(tmp_path, make(), at(1), keep=0)


def test_a_model_that_is_not_compiled_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no optimizer, which is part of a run's state"):
        checkpoints.save(tmp_path, WithLabels(), at(1))
