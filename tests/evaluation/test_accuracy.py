"""Top-k accuracy against scikit-learn and tf.math.top_k."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import top_k_accuracy_score

from selabel_tf.evaluation.accuracy import top_k


@pytest.mark.parametrize("k", [1, 2, 5])
def test_distinct_scores_as_in_scikit_learn(k):
    rng = np.random.default_rng(k)
    scores, classes = rng.normal(size=(53, 7)), rng.integers(0, 7, 53)
    expected = top_k_accuracy_score(classes, scores, k=k, labels=range(7))
    assert top_k(scores, classes, k) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 3])
def test_equal_scores_as_in_tensorflow(k):
    rng = np.random.default_rng(k)
    scores, classes = rng.integers(0, 3, (101, 7)).astype(np.float32), rng.integers(0, 7, 101)
    chosen = tf.math.top_k(scores, k).indices.numpy()
    assert top_k(scores, classes, k) == pytest.approx((chosen == classes[:, None]).any(axis=1).mean())


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match=r"scores \(3, 2\) and classes \(2,\)"):
        top_k(np.zeros((3, 2)), np.zeros(2, int), 1)
    with pytest.raises(ValueError, match="NaN or infinity"):
        top_k(np.full((3, 2), np.nan), np.zeros(3, int), 1)
