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
FEATURES = StoredFeatures(np.zeros((64, 3), np.float32), np.zeros(64, int))
IMAGES = data.from_arrays(np.zeros((64, 4, 4, 3), np.uint8)).augmented("flip")


def threads_of(dataset):
    """How many one iteration adds to the process."""

    def count():
        return len(list(Path("/proc/self/task").iterdir()))

    next(iter(dataset))  # what is started once and stays
    before, iterator = count(), iter(dataset)
    next(iterator)
    return count() - before


def tuned(dataset):
    options = tf.data.Options()
    options.autotune.enabled = True
    return dataset.with_options(options)


def stock():
    return tf.data.Dataset.range(64).map(lambda i: i + 1, num_parallel_calls=tf.data.AUTOTUNE).prefetch(1)


def test_a_stock_dataset_is_tuned_by_one_more_thread():
    assert threads_of(stock()) == threads_of(tuned(stock())) == threads_of(untuned(stock())) + 1


def test_what_an_untuned_dataset_holds_is_the_same_and_its_other_options_stay():
    options = tf.data.Options()
    options.deterministic = False
    dataset = untuned(stock().with_options(options))
    assert sorted(dataset.as_numpy_iterator()) == list(range(1, 65))
    assert dataset.options().deterministic is False


@pytest.mark.parametrize(
    "batches",
    [
        lambda: IMAGES.train_batches(8),
        lambda: IMAGES.view_batches(8, position=0),
        lambda: IMAGES.plain_batches(8),
        lambda: IMAGES.ten_crop_batches(8),
        lambda: FEATURES.train_batches(8),
    ],
    ids=["training", "label pass", "plain", "ten crops", "probe"],
)
def test_no_batches_of_ours_are_tuned(batches):
    assert threads_of(tuned(batches())) == threads_of(batches()) + 1
