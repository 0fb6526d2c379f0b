"""Runs that are made to fail, each in its own way, and what the collapse doctor says of them while they run."""

import keras
import numpy as np
import pytest

from selabel_tf.config import Augment, Data, Evaluation, Label, Model, Optimizer
from selabel_tf.training import distribution, experiment
from selabel_tf.training.run_log import read_records


@pytest.fixture(autouse=True)
def seeds_only(monkeypatch):
    monkeypatch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)


@pytest.fixture
def diagnose(tmp_path, small_config):
    """A function: changes of the config, callback that does harm -> {kind: heads} of the doctor's records."""

    def run(harm=None, **changes):
        config = small_config(
            **{
                "data": Data(source="digits", examples_per_class=15),
                "model": Model(num_clusters=(6, 6)),
                "label": Label(num_relabels=10, schedule="linear"),
                "optimizer": Optimizer(learning_rate=0.05),
                "evaluation": Evaluation(knn=False, kmeans=False),
                "epochs": 10,
                "batch_size": 13,  # 12 steps an epoch
                **changes,
            }
        )
        said = []
        watcher = experiment.Watcher(say=said.append, callbacks=() if harm is None else (harm,))
        experiment.run(config, tmp_path / "run", watcher=watcher)
        records = [r for r in read_records(tmp_path / "run" / "metrics.jsonl") if r["kind"] == "doctor"]
        told = [text for text in said if text.startswith("Doctor: ")]
        assert told == [f"Doctor: {r['seen']} {r['advice']}" for r in records]  # what is logged is said
        found = {}
        for record in records:
            found.setdefault(record["problem"], set()).add(record["head"])
        return found

    return run


def test_a_healthy_run_is_left_in_peace(diagnose):
    assert diagnose() == {}


def test_a_learning_rate_of_nothing_leaves_loss_and_labels_where_they_are(diagnose):
    found = diagnose(
        optimizer=Optimizer(learning_rate=1e-9),
        augment=Augment(policy="none"),
    )  # all images in one batch of a label pass: BatchNorm finds the same statistics every time
    assert found.keys() >= {"stuck loss", "frozen labels"}
    assert (found["stuck loss"], found["frozen labels"]) == ({None}, {0, 1})
    assert not found.keys() & {"unstable labels", "copied head"}


class Twins(keras.callbacks.Callback):
    """Gives the second head the weights of the first."""

    def on_train_begin(self, logs=None):
        kernel = np.array(self.model.heads.kernel)
        kernel[:, 6:] = kernel[:, :6]
        self.model.heads.kernel.assign(kernel)


def test_two_heads_with_the_same_weights_are_found_out(diagnose):
    assert diagnose(Twins()) == {"copied head": {0, 1}}


class Oblivion(keras.callbacks.Callback):
    """Draws all weights anew after every epoch."""

    def on_epoch_end(self, epoch, logs=None):
        generator = np.random.default_rng(epoch)
        for variable in self.model.trainable_variables:
            if len(variable.shape) > 1:
                scale = np.sqrt(2 / np.prod(variable.shape[:-1]))
                variable.assign(scale * generator.normal(size=variable.shape))


def test_a_network_that_forgets_everything_has_labels_that_change_completely(diagnose):
    found = diagnose(Oblivion(), model=Model(num_clusters=(20, 20)))
    assert "unstable labels" in found


class Silence(keras.callbacks.Callback):
    """Keeps the network from predicting cluster 4 of head 1 in label passes, which come before the first step."""

    def on_epoch_end(self, epoch, logs=None):
        self.kept = self._put(-100, 0)  # below all other logits

    def on_train_batch_end(self, batch, logs=None):
        if batch == 0 and hasattr(self, "kept"):
            self._put(*self.kept)

    def _put(self, *values):
        """A bias and a column of weights for the cluster; returns those it had."""
        had = []
        for variable, value in zip((self.model.heads.bias, self.model.heads.kernel), values, strict=True):
            array = np.array(variable)
            had.append(array[..., 6 + 4].copy())
            array[..., 6 + 4] = value
            variable.assign(array)
        return had


def test_a_cluster_that_cannot_be_predicted_is_named(diagnose, tmp_path):
    assert diagnose(Silence())["unpredicted clusters"] == {1}
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    seen = next(r["seen"] for r in records if r["kind"] == "doctor" and r["problem"] == "unpredicted clusters")
    assert "Head 1: 1 of 6 clusters (4) predicted for no image" in seen
