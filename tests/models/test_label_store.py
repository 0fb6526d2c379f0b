import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.models.label_store import LabelStore


def test_labels_start_balanced_in_every_head():
    labels = LabelStore(101, (7, 5), seed=3).labels()
    assert labels.shape == (101, 2)
    assert labels.dtype == np.int32
    for head, k in enumerate((7, 5)):
        sizes = np.bincount(labels[:, head], minlength=k)
        assert sizes.min() == 101 // k
        assert sizes.max() == 101 // k + 1


def test_first_labels_depend_on_seed_and_head_only():
    first = LabelStore(1009, (7, 7), seed=3).labels()
    np.testing.assert_array_equal(first, LabelStore(1009, (7, 7), seed=3).labels())
    assert (first != LabelStore(1009, (7, 7), seed=4).labels()).mean() > 0.7
    assert (first[:, 0] != first[:, 1]).mean() > 0.7
    assert (first[:, 0] != np.arange(1009) % 7).mean() > 0.7


def test_lookup_finds_rows_by_index():
    store = LabelStore(101, (7, 5))
    index = np.array([3, 100, 3, 0])
    np.testing.assert_array_equal(store.lookup(index), store.labels()[index])


@pytest.mark.parametrize("index", [[0, 101], [-1]])
@pytest.mark.parametrize("compiled", [False, True])
def test_an_index_outside_the_training_set_is_refused(index, compiled):
    store = LabelStore(101, (7,))
    lookup = tf.function(store.lookup) if compiled else store.lookup
    with pytest.raises(tf.errors.InvalidArgumentError, match="not of the training set"):
        lookup(tf.constant(index))


def test_a_compiled_lookup_sees_what_was_assigned_later():
    store = LabelStore(11, (3, 5))
    lookup = tf.function(store.lookup)
    before = lookup(tf.range(11)).numpy()
    store.assign_head(1, np.arange(11) % 5, np.arange(5.0))
    after = lookup(tf.range(11)).numpy()
    np.testing.assert_array_equal(after[:, 1], np.arange(11) % 5)
    np.testing.assert_array_equal(after[:, 0], before[:, 0])


def test_scalings_are_kept_per_head_in_double_precision():
    store = LabelStore(11, (3, 5))
    assert not store.log_alpha(0).any()
    values = np.array([1.0, 1 + 1e-12, 2.0])
    store.assign_head(0, np.zeros(11), values)
    np.testing.assert_array_equal(store.log_alpha(0), values)
    assert not store.log_alpha(1).any()


def test_nothing_in_the_store_is_trained():
    store = LabelStore(11, (3,))
    assert not store.trainable_weights
    assert [tuple(w.shape) for w in store.weights] == [(11, 1), (3,)]
    assert store.values.dtype == "int64"  # there is no int32 resource gather on GPUs


def test_the_config_makes_the_same_store():
    store = LabelStore(101, (7, 5), seed=3)
    again = LabelStore.from_config(store.get_config())
    np.testing.assert_array_equal(store.labels(), again.labels())
