import json

import keras
import numpy as np
import pytest
import scipy.special

from selabel_tf.models.heads import MultiHead


@pytest.fixture
def heads():
    layer = MultiHead([3, 7, 5])
    layer.build((None, 11))
    layer.kernel.assign(np.random.default_rng(0).normal(size=(11, 15)))
    layer.bias.assign(np.random.default_rng(1).normal(size=15))
    return layer


@pytest.fixture
def z():
    return np.random.default_rng(2).normal(size=(13, 11)).astype(np.float32)


def test_each_head_is_a_linear_classifier_of_its_own(heads, z):
    logits = heads(z)
    assert [tuple(x.shape) for x in logits] == [(13, 3), (13, 7), (13, 5)]
    kernel, bias = np.array(heads.kernel), np.array(heads.bias)
    for scores, columns in zip(logits, (slice(0, 3), slice(3, 10), slice(10, 15)), strict=True):
        np.testing.assert_allclose(scores, z @ kernel[:, columns] + bias[columns], rtol=1e-5, atol=1e-5)


def test_spans_follow_each_other(heads):
    assert [heads.span(h) for h in range(3)] == [slice(0, 3), slice(3, 10), slice(10, 15)]


def test_log_probabilities_are_the_log_softmax_of_the_heads_logits(heads, z):
    for head, scores in enumerate(heads(z)):
        expected = scipy.special.log_softmax(np.asarray(scores, np.float64), axis=1)
        np.testing.assert_allclose(heads.log_probabilities(z, head), expected, atol=1e-5)


def test_log_probabilities_stay_float32_under_mixed_precision(z):
    layer = MultiHead([3], dtype="mixed_float16")
    layer.build((None, 11))
    assert layer.log_probabilities(z.astype(np.float16), 0).dtype == "float32"
    assert layer(z.astype(np.float16))[0].dtype == "float16"


def test_weights_start_normal_and_biases_at_zero():
    layer = MultiHead([1009])
    layer.build((None, 101))
    kernel = np.array(layer.kernel)
    assert abs(kernel.std() - 0.01) < 1e-4
    assert abs(kernel.mean()) < 2e-4
    assert not np.array(layer.bias).any()


def test_the_config_makes_the_same_layer(heads):
    again = MultiHead.from_config(heads.get_config())
    assert again.num_clusters == (3, 7, 5)
    assert again.compute_output_shape((None, 11)) == [(None, 3), (None, 7), (None, 5)]
    assert keras.saving.get_registered_name(MultiHead) == "selabel_tf>MultiHead"


def test_a_single_number_means_one_head():
    assert MultiHead(17).num_clusters == (17,)


@pytest.mark.parametrize("counts", [np.int64(5), [np.int32(5)], np.array([5])])
def test_whole_numbers_of_numpy_are_whole_numbers(counts):
    layer = MultiHead(counts)
    assert layer.num_clusters == (5,) and type(layer.num_clusters[0]) is int
    json.dumps(layer.get_config())


@pytest.mark.parametrize("bad", [[], 0, [5, 0], [-3], [2.5], [True], ["7"]])
def test_cluster_counts_must_be_whole_and_positive(bad):
    with pytest.raises(ValueError, match=r"at least 1 per head.*\[128\] \* 10"):
        MultiHead(bad)
