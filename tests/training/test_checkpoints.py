"""A run resumed from a checkpoint goes on as if nothing had happened; a torn checkpoint is never trusted."""

import json
import warnings

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
    checkpoints.save(tmp_path, model, {"epoch": 2, "step": 6})
    saved = state(model)
    train(model, 2)

    resumed = make()  # other weights, other seeds, and other running numbers in its names
    checkpoint = checkpoints.latest(tmp_path)
    assert checkpoint.facts == {"epoch": 2, "step": 6}
    checkpoints.restore(checkpoint, resumed)
    for ours, theirs in zip(state(resumed), saved, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    train(resumed, 2)
    assert_same(state(resumed), state(model))


def test_the_seed_state_of_dropout_is_part_of_the_state(tmp_path):
    checkpoint = checkpoints.save(tmp_path, make(), {"epoch": 1})
    assert [v["name"] for v in checkpoint.variables if "seed" in v["name"]] == ["seed_generator/seed_generator_state"]


def test_a_model_that_has_already_trained_is_restored_too(tmp_path):
    model = make()
    train(model, 1)
    checkpoint = checkpoints.save(tmp_path, model, {"epoch": 1})
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
    checkpoints.save(tmp_path, model, {"epoch": 2})  # builds the optimizer where `fit` has not yet
    model.optimizer.momentums[0].assign(np.full((5, 7), 0.5))
    model.optimizer.iterations.assign(2)
    checkpoints.save(tmp_path, model, {"epoch": 2})
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
    checkpoints.save(tmp_path, model, {"epoch": 2})
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
    checkpoints.save(tmp_path, model, {"epoch": 1})
    checkpoints.restore(checkpoints.latest(tmp_path), resumed)
    assert resumed.extra.numpy().dtype == model.extra.numpy().dtype
    assert resumed.extra.numpy().tobytes() == model.extra.numpy().tobytes()


def epochs(folder):
    return sorted(path.name for path in folder.iterdir())


def test_only_the_last_ones_are_kept(tmp_path):
    model = make()
    for epoch in (7, 9, 10, 11):
        checkpoints.save(tmp_path, model, {"epoch": epoch})
    assert epochs(tmp_path) == ["epoch-0010", "epoch-0011"]
    checkpoints.save(tmp_path, model, {"epoch": 12}, keep=1)
    assert epochs(tmp_path) == ["epoch-0012"]


def test_epochs_beyond_four_digits_are_ordered_by_number_and_other_files_left_alone(tmp_path):
    model = make()
    (tmp_path / "epoch-notes").mkdir()
    for epoch in (9999, 10000):
        checkpoints.save(tmp_path, model, {"epoch": epoch})
    assert checkpoints.latest(tmp_path).facts["epoch"] == 10000
    assert epochs(tmp_path) == ["epoch-10000", "epoch-9999", "epoch-notes"]


def test_a_later_torn_checkpoint_does_not_push_out_the_one_just_written(tmp_path):
    model = make()
    (tmp_path / "epoch-0009").mkdir(parents=True)
    checkpoints.save(tmp_path, model, {"epoch": 5}, keep=1)
    assert epochs(tmp_path) == ["epoch-0005"]


def test_an_earlier_torn_checkpoint_does_not_push_out_a_good_one(tmp_path):
    model = make()
    for epoch in (1, 2):
        checkpoints.save(tmp_path, model, {"epoch": epoch})
    (tmp_path / "epoch-0002" / "state.npz").write_bytes(b"torn")
    checkpoints.save(tmp_path, model, {"epoch": 3}, keep=2)
    assert epochs(tmp_path) == ["epoch-0001", "epoch-0003"]


def test_without_a_checkpoint_there_is_none(tmp_path):
    assert checkpoints.latest(tmp_path / "nowhere") is None
    assert checkpoints.latest(tmp_path) is None


def test_a_whole_checkpoint_is_taken_without_a_warning(tmp_path):
    checkpoints.save(tmp_path, make(), {"epoch": 3})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.latest(tmp_path).path.name == "epoch-0003"


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


TEARS = {
    "it has no manifest.json": lambda folder: (folder / "manifest.json").unlink(),
    "its manifest.json cannot be read": lambda folder: cut(folder / "manifest.json"),
    "its manifest.json is not one of ours": lambda folder: (folder / "manifest.json").write_text("[]"),
    "it has no state.npz": lambda folder: (folder / "state.npz").unlink(),
    "its state.npz fails the checksum": lambda folder: cut(folder / "state.npz"),
}


@pytest.mark.parametrize("problem", TEARS)
def test_a_torn_checkpoint_is_passed_over_for_the_one_before_with_a_warning(tmp_path, problem):
    model = make()
    for epoch in (3, 4):
        checkpoints.save(tmp_path, model, {"epoch": epoch})
    TEARS[problem](tmp_path / "epoch-0004")
    with pytest.warns(UserWarning, match=f"Passing over checkpoint .*epoch-0004: {problem}"):
        assert checkpoints.latest(tmp_path).facts == {"epoch": 3}
    TEARS[problem](tmp_path / "epoch-0003")
    with pytest.warns(UserWarning) as told:
        assert checkpoints.latest(tmp_path) is None
    assert len(told) == 2


def refused(checkpoint, model, message):
    before = state(model)
    with pytest.raises(ValueError, match=message):
        checkpoints.restore(checkpoint, model)
    for ours, theirs in zip(state(model), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_model_of_another_shape_is_refused_before_anything_is_assigned(tmp_path):
    checkpoint = checkpoints.save(tmp_path, make(7), {"epoch": 1})
    other = make(11)
    other.optimizer.build(other.trainable_variables)
    refused(
        checkpoint,
        other,
        r"dense/kernel float32 \[5, 7\] where the model has .*\[5, 11\]. Resume with",
    )


def test_a_model_with_more_variables_is_refused(tmp_path):
    checkpoint = checkpoints.save(tmp_path, make(), {"epoch": 1})
    other = make(optimizer=keras.optimizers.Adam())
    other.optimizer.build(other.trainable_variables)
    refused(checkpoint, other, r"has \d+ variables and the model with its optimizer \d+\. Resume with")


@pytest.mark.parametrize(("key", "value"), [("name", "other/kernel"), ("dtype", "float16")])
def test_another_name_or_dtype_is_refused(tmp_path, key, value):
    model = make()
    path = checkpoints.save(tmp_path, model, {"epoch": 1}).path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["variables"][-1][key] = value
    path.write_text(json.dumps(manifest))
    refused(checkpoints.latest(tmp_path), model, f"has .*{value}.* where the model has optimizer/")


@pytest.mark.parametrize("facts", [{}, {"epoch": -1}, {"epoch": 2.0}, {"epoch": True}])
def test_facts_without_an_epoch_are_refused(tmp_path, facts):
    with pytest.raises(ValueError, match="must be the number of epochs done"):
        checkpoints.save(tmp_path, make(), facts)


def test_facts_that_are_no_json_are_refused_and_the_last_checkpoint_stays_good(tmp_path):
    model = make()
    checkpoints.save(tmp_path, model, {"epoch": 1, "note": "good"})
    with pytest.raises(ValueError, match="JSON compliant"):
        checkpoints.save(tmp_path, model, {"epoch": 1, "note": float("nan")})
    assert checkpoints.latest(tmp_path).facts["note"] == "good"


def test_keeping_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep=0 would remove the checkpoint just written"):
        checkpoints.save(tmp_path, make(), {"epoch": 1}, keep=0)


def test_a_model_that_is_not_compiled_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no optimizer, which is part of a run's state"):
        checkpoints.save(tmp_path, WithLabels(), {"epoch": 1})
