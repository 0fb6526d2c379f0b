import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.features import Extractor, at_layers, extract
from selabel_tf.models import backbone

IMAGES = np.random.default_rng(0).random((37, 3, 2, 1), np.float32)


def flatten(images):
    return tf.reshape(images, (-1, 6))


def batches(order, size=5):
    order = np.asarray(order)
    images = IMAGES[order % len(IMAGES)]
    return tf.data.Dataset.from_tensor_slices((images, order.astype(np.int64))).batch(size)


def test_rows_are_addressed_by_index_whatever_the_order():
    order = np.random.default_rng(1).permutation(37)
    np.testing.assert_array_equal(extract(flatten, batches(order), 37), IMAGES.reshape(37, 6))


def test_two_replicas_give_the_same_rows(two_replicas):
    # 37 in batches of 4: the last batch has one row, so one replica gets nothing
    rows = Extractor(flatten, two_replicas)(batches(np.arange(37), 4), 37)
    np.testing.assert_array_equal(rows, IMAGES.reshape(37, 6))


def test_half_precision_becomes_float32():
    rows = extract(lambda images: tf.cast(flatten(images), tf.float16), batches(np.arange(37)), 37)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, IMAGES.reshape(37, 6), atol=1e-3)


def test_the_short_last_batch_costs_no_second_trace_and_later_calls_none():
    traces = []

    def forward(images):
        traces.append(images.shape)
        return flatten(images)

    extractor = Extractor(forward)
    extractor(batches(np.arange(37)), 37)
    first = len(traces)
    extractor(batches(np.arange(37)), 37)
    extractor(batches(np.arange(37), 7), 37)
    assert first == 1
    assert len(traces) == first


def test_progress_is_told_in_rows():
    told = []
    extract(flatten, batches(np.arange(37)), 37, told.append)
    assert told == [5, 10, 15, 20, 25, 30, 35, 37]


def test_a_missing_example_is_named():
    with pytest.raises(ValueError, match="36 of 37 examples; index 36 never came"):
        extract(flatten, batches(np.arange(36)), 37)


def test_an_example_that_comes_twice_is_refused():
    with pytest.raises(ValueError, match="came twice"):
        extract(flatten, batches([0, 1, 1]), 37)
    with pytest.raises(ValueError, match="came twice"):
        extract(flatten, batches([0, 1, 2, 3, 4, 1]), 37)


@pytest.mark.parametrize("index", [-1, 37])
def test_an_index_of_another_set_is_refused(index):
    with pytest.raises(ValueError, match=r"outside 0\.\.36"):
        extract(flatten, batches([0, index]), 37)


def test_layers_of_a_backbone_in_the_order_asked_for():
    trunk = backbone("small_conv", (16, 16, 1))
    names = [layer.name for layer in trunk.layers]
    images = np.random.default_rng(1).normal(size=(3, 16, 16, 1)).astype(np.float32)
    last, early = at_layers(trunk, [names[-1], names[2]])(images)
    np.testing.assert_array_equal(last, trunk(images))
    assert early.shape == (3, *trunk.layers[2].output.shape[1:])


def test_an_unknown_layer_is_refused_with_the_known_ones():
    trunk = backbone("small_conv", (16, 16, 1))
    with pytest.raises(ValueError, match=r"no layer 'convv1'.* Its layers: .*conv1"):
        at_layers(trunk, ["convv1"])
