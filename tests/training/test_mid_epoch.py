"""Training that begins in the middle of an epoch is training that never stopped."""

import keras
import numpy as np
import pytest

import selabel_tf as sl
from selabel_tf.training import checkpoints
from selabel_tf.training.mid_epoch import fit_from

STEPS, EPOCHS = 8, 3  # 23 images in batches of 3: the last has 2


@pytest.fixture(scope="module")
def source():
    return sl.data.from_arrays(np.random.default_rng(3).integers(0, 256, (23, 5, 7, 1), dtype=np.uint8))


def make(steps_per_execution=1):
    inputs = keras.Input((5, 7, 1))
    hidden = keras.layers.Dense(11, activation="relu")(keras.layers.Flatten()(inputs))
    hidden = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization()(hidden))
    model = sl.SelfLabelModel(keras.Model(inputs, hidden), num_clusters=[3, 5], num_examples=23)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), steps_per_execution=steps_per_execution)
    model.optimizer.build(model.trainable_variables)
    return model


class Diary(keras.callbacks.Callback):
    """Writes down all that a callback is told, and saves the state after the given step."""

    def __init__(self, save_at=None, folder=None):
        super().__init__()
        self.save_at, self.folder, self.told, self.epoch_losses = save_at, folder, [], {}

    def on_train_begin(self, logs=None):
        self.told.append(("begin", self.params["epochs"], self.params["steps"]))

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.told.append(("epoch begins", epoch))

    def on_train_batch_begin(self, batch, logs=None):
        self.told.append(("batch begins", batch))

    def on_train_batch_end(self, batch, logs=None):
        self.told.append(("batch ends", batch, logs["loss"]))
        if self.epoch * STEPS + batch + 1 == self.save_at:
            checkpoints.save(self.folder, self.model, {"step": self.save_at, "label_passes": 0})

    def on_epoch_end(self, epoch, logs=None):
        self.told.append(("epoch ends", epoch, logs["loss"]))

    def on_train_end(self, logs=None):
        self.told.append(("end",))


def train(step, model, source, diary):
    """The whole training of a run, label passes included, or what is left of it after `step`."""
    labelling = sl.SelfLabelCallback(source, num_relabels=6, schedule="linear")  # before steps 0, 4, 8, ...
    labelling.passes_done = -(-step // 4)
    fit_from(step, model, source, batch_size=3, seed=2, epochs=EPOCHS, callbacks=[labelling, diary])


def after(told, epoch, batch):
    """What is told from a batch on."""
    place = told.index(("epoch begins", epoch))
    return told[place + 1 + told[place + 1 :].index(("batch begins", batch)) :]


@pytest.mark.parametrize(("step", "together"), [(13, 1), (23, 1), (14, 2)])
def test_a_run_goes_on_from_any_batch_as_if_it_had_never_stopped(source, tmp_path, step, together):
    whole, resumed = make(together), make(together)
    ours, theirs = Diary(step, tmp_path), Diary()
    train(0, whole, source, ours)
    checkpoints.restore(checkpoints.latest(tmp_path), resumed)
    train(step, resumed, source, theirs)
    epoch, batch = divmod(step, STEPS)
    assert theirs.told[:2] == [("begin", EPOCHS, STEPS), ("epoch begins", epoch)]
    assert len(theirs.told) == 2 + len(after(ours.told, epoch, batch))
    for one, other in zip(after(ours.told, epoch, batch), theirs.told[2:], strict=True):
        assert one[:2] == other[:2]
        assert one[2:] == pytest.approx(other[2:], rel=1e-6)  # the running loss, from the middle of its epoch on
    for one, other in zip(whole.variables, resumed.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=0, atol=1e-6)
    for one, other in zip(whole.optimizer.variables, resumed.optimizer.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=0, atol=1e-6)


def test_a_callback_that_stops_training_stops_the_epochs_after_the_rest_as_well(source):
    class Enough(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    diary = Diary()
    fit_from(13, make(), source, batch_size=3, seed=2, epochs=EPOCHS, callbacks=[diary, Enough()])
    assert [what[:2] for what in diary.told if what[0].startswith("epoch")] == [("epoch begins", 1), ("epoch ends", 1)]
    assert diary.told[-1] == ("end",)


def test_at_the_end_nothing_is_left_to_do(source):
    diary = Diary()
    fit_from(EPOCHS * STEPS, make(), source, batch_size=3, seed=2, epochs=EPOCHS, callbacks=[diary])
    assert diary.told == [("begin", EPOCHS, STEPS), ("end",)]


def test_on_two_replicas_the_loss_goes_on_from_the_middle_too(two_replicas, tmp_path):
    images = np.random.default_rng(3).integers(0, 256, (22, 5, 7, 1), dtype=np.uint8)
    source = sl.data.from_arrays(images)

    class Losses(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.losses = []

        def on_epoch_begin(self, epoch, logs=None):
            source.next_epoch = epoch  # as SelfLabelCallback does

        def on_train_batch_end(self, batch, logs=None):
            self.losses.append(logs["loss"])
            if len(self.losses) == 3 and not (tmp_path / "one").exists():
                checkpoints.save(tmp_path / "one", self.model, {"step": 3, "label_passes": 0})

    with two_replicas.scope():
        whole, resumed = make(), make()
    ours, theirs = Losses(), Losses()
    fit_from(0, whole, source, batch_size=4, seed=2, epochs=1, callbacks=[ours])
    checkpoints.restore(checkpoints.latest(tmp_path / "one"), resumed)
    fit_from(3, resumed, source, batch_size=4, seed=2, epochs=1, callbacks=[theirs])
    assert theirs.losses == pytest.approx(ours.losses[3:], rel=1e-5)
