"""No iteration of ours starts the thread that the end of an iteration would wait for."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import selabel_tf.data as data
from selabel_tf.evaluation.probe_training import StoredFeatures
from selabel_tf.untuned import untuned

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
IMAGES = np.zeros((64, 4, 4, 3), np.uint8)


def tuners():
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("tf_data_model") for name in names)


def tuners_of(dataset):
    """Threads that one iteration adds."""
    before, iterator = tuners(), iter(dataset)
    next(iterator)
    return tuners() - before


def stock():
    return tf.data.Dataset.range(64).map(lambda i: i + 1, num_parallel_calls=tf.data.AUTOTUNE).prefetch(1)


def test_a_stock_dataset_is_tuned_by_a_thread_and_an_untuned_one_is_not():
    assert tuners_of(stock()) == 1
    assert tuners_of(untuned(stock())) == 0


def test_what_an_untuned_dataset_holds_is_the_same_and_its_other_options_stay():
    options = tf.data.Options()
    options.deterministic = False
    dataset = untuned(stock().with_options(options))
    assert sorted(dataset.as_numpy_iterator()) == list(range(1, 65))
    assert dataset.options().deterministic is False


@pytest.mark.parametrize(
    ("kind", "options"),
    [("train", {}), ("view", {"position": 0}), ("plain", {}), ("ten_crop", {})],
)
def test_no_batches_of_a_source_are_tuned(kind, options):
    source = data.from_arrays(IMAGES).augmented("flip")
    assert tuners_of(getattr(source, f"{kind}_batches")(8, **options)) == 0


def test_nor_are_those_that_probes_are_trained_on():
    assert tuners_of(StoredFeatures(np.zeros((64, 3), np.float32), np.zeros(64, int)).train_batches(8)) == 0
