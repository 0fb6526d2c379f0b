"""The probe for few labels, against scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from selabel_tf.evaluation import few_label_probe

D, C = 13, 3


def problem(per_class, seed, noise=2.0):
    """(features, classes) of C overlapping clouds; the last feature never varies."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(C, D))
    classes = np.tile(np.arange(C), per_class)
    features = 50 + centres[classes] + noise * rng.normal(size=(len(classes), D))
    features[:, -1] = 7
    return features.astype(np.float32), classes


@pytest.mark.parametrize("l2", [0.1, 0.01])
def test_with_a_given_l2_it_is_scikit_learns_logistic_regression(l2):
    (features, classes), (unseen, _) = problem(17, 1), problem(11, 2)
    probe = few_label_probe.fit(features, classes, C, l2=l2)
    scaler = StandardScaler().fit(features)
    model = LogisticRegression(C=1 / (len(features) * l2), max_iter=2000)
    model.fit(scaler.transform(features), classes)
    expected = model.predict_log_proba(scaler.transform(unseen))
    scores = probe.scores(unseen)
    difference = scores - expected  # a constant for each image, which the softmax does not see
    np.testing.assert_allclose(difference - difference.mean(axis=1, keepdims=True), 0, atol=0.02)
    assert probe.l2 == l2


def test_the_labelled_images_choose_a_strong_l2_for_noise_and_a_weak_one_where_large_weights_are_needed():
    features, classes = problem(7, 3)
    noise = np.random.default_rng(4).permutation(classes)
    assert few_label_probe.fit(features, noise, C).l2 >= 0.1
    rng = np.random.default_rng(5)
    first, classes = rng.normal(size=101), np.arange(101) % 2
    alike = np.stack(
        [first, first + 0.1 * classes + 0.02 * rng.normal(size=101)], axis=1
    )  # only their difference tells
    assert few_label_probe.fit(alike, classes, 2).l2 <= 0.01


def test_folds_divide_every_class_evenly_and_depend_on_the_seed():
    classes = np.repeat(np.arange(C), 15)
    fold = few_label_probe.folds(classes, 0)
    for value in range(C):
        np.testing.assert_array_equal(np.bincount(fold[classes == value]), [3] * 5)
    assert (fold != few_label_probe.folds(classes, 1)).any()


def test_one_image_of_each_class_is_enough():
    features, classes = problem(1, 6)
    probe = few_label_probe.fit(features, classes, C)
    np.testing.assert_array_equal(probe.scores(features).argmax(axis=1), classes)
