"""Label passes leave nothing behind in memory."""

import os

import keras
import numpy as np
import pytest

import selabel_tf as sl
from selabel_tf.config import Evaluation, Label
from selabel_tf.training import distribution, experiment

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="resident memory is read from /proc")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


def test_memory_after_fifty_label_passes_is_that_after_five():
    source = sl.data.from_arrays(np.random.default_rng(3).integers(0, 256, (53, 5, 7, 1), dtype=np.uint8))
    inputs = keras.Input((5, 7, 1))
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(11)(keras.layers.Flatten()(inputs)))
    model = sl.SelfLabelModel(keras.Model(inputs, hidden), num_clusters=[3, 5], num_examples=53)
    model.compile("sgd")
    sizes = []
    labelling = sl.SelfLabelCallback(
        source, num_relabels=50, schedule="linear", on_label_pass=lambda label_pass: sizes.append(resident())
    )
    model.fit(source.train_batches(53), epochs=50, verbose=0, callbacks=[labelling])
    assert len(sizes) == 50
    assert sizes[49] < 1.05 * sizes[4]


@pytest.mark.slow
def test_memory_of_a_whole_run_does_not_grow_either(tmp_path, small_config, monkeypatch):
    monkeypatch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
    sizes = []
    watcher = experiment.Watcher(on_label_pass=lambda label_pass: sizes.append(resident()))
    config = small_config(
        epochs=50,
        batch_size=60,
        label=Label(num_relabels=50, schedule="linear"),
        evaluation=Evaluation(knn=False, kmeans=False),
    )
    experiment.run(config, tmp_path / "run", watcher=watcher)
    assert sizes[49] < 1.05 * sizes[4]
