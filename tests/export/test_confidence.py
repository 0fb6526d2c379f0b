"""Probabilities and runners-up against float64 NumPy."""

import keras
import numpy as np
import pytest
from scipy.special import softmax

from selabel_tf import SelfLabelModel, backbone
from selabel_tf.data import from_arrays
from selabel_tf.export import confidence

N, NUM_CLUSTERS = 23, (5, 2, 7)


def a_model(num_clusters=NUM_CLUSTERS, sharpness=3.0):
    keras.utils.set_random_seed(3)
    model = SelfLabelModel(backbone("small_conv", (16, 16, 1)), num_clusters, N)
    # heads begin with tiny weights: make them sure of something
    model.heads.kernel.assign(sharpness * np.random.default_rng(0).normal(size=model.heads.kernel.shape))
    return model


@pytest.fixture(scope="module")
def model():
    return a_model()


@pytest.fixture(scope="module")
def source():
    images = np.random.default_rng(1).integers(0, 256, (N, 16, 16, 1), dtype=np.uint8)
    return from_arrays(images).augmented("none", mean=[0.4], std=[0.3])


def images_of(source):
    return np.concatenate([images for images, _ in source.plain_batches(N).as_numpy_iterator()])


def expected(model, images, labels):
    """[N, H] each: probability, runner_up, runner_up_probability, by loops over rows and heads."""
    probability, runner_up, other = np.zeros(labels.shape), np.zeros(labels.shape, int), np.zeros(labels.shape)
    for head, logits in enumerate(model(images, training=False)):
        p = softmax(np.asarray(logits, np.float64), axis=1)
        for row, cluster in enumerate(labels[:, head]):
            by_size = [k for k in np.argsort(-p[row]) if k != cluster]
            probability[row, head] = p[row, cluster]
            runner_up[row, head], other[row, head] = by_size[0], p[row, by_size[0]]
    return probability, runner_up, other


def assert_agrees(found, wanted):
    np.testing.assert_allclose(found.probability, wanted[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found.runner_up, wanted[1])
    np.testing.assert_allclose(found.runner_up_probability, wanted[2], rtol=1e-4, atol=1e-6)
    assert found.runner_up.dtype == np.int32
    assert found.probability.dtype == found.runner_up_probability.dtype == np.float32


def test_given_labels_get_the_probability_of_their_cluster_and_the_best_other_one(model, source):
    labels = model.labels  # random ones: mostly not the most probable
    done = []
    found = confidence.of_labels(model, source.plain_batches(7), labels, done.append)
    wanted = expected(model, images_of(source), labels)
    assert (wanted[2] > wanted[0]).any() and (wanted[2] < wanted[0]).any()
    assert_agrees(found, wanted)
    assert done == [7, 14, 21, 23]


def test_labels_are_found_by_index_not_by_position(model, source):
    found = confidence.of_labels(model, source.plain_batches(7), model.labels)
    shuffled = source.plain_batches(5).unbatch().shuffle(N, seed=0).batch(3)
    again = confidence.of_labels(model, shuffled, model.labels)
    np.testing.assert_allclose(again.probability, found.probability, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(again.runner_up, found.runner_up)


def test_predictions_are_those_of_model_assign(model, source):
    clusters, found = confidence.predict(model, source.plain_batches(7), N)
    images = images_of(source)
    np.testing.assert_array_equal(clusters, model.assign(images))
    assert clusters.dtype == np.int32
    assert_agrees(found, expected(model, images, clusters))
    assert (found.probability >= found.runner_up_probability).all()


def test_a_runner_up_is_found_where_its_probability_vanishes(source):
    model = a_model((5,), sharpness=1e4)
    clusters, found = confidence.predict(model, source.plain_batches(7), N)
    assert (found.runner_up_probability == 0).any()
    logits = np.array(model(images_of(source), training=False)[0])
    np.testing.assert_array_equal(found.runner_up[:, 0], np.argsort(-logits, axis=1)[:, 1])
    assert (found.runner_up != clusters).all()


def test_a_gray_network_sees_colour_images_in_gray(model):
    gray = np.random.default_rng(1).integers(0, 256, (N, 16, 16, 1), dtype=np.uint8)
    one = from_arrays(gray).augmented("none", mean=[0.4], std=[0.3])
    three = from_arrays(np.repeat(gray, 3, axis=3)).augmented("none", mean=[0.4], std=[0.3])
    ours, theirs = (confidence.predict(model, s.plain_batches(7), N)[1] for s in (one, three))
    np.testing.assert_allclose(ours.probability, theirs.probability, rtol=1e-3, atol=1e-5)


def test_two_replicas_agree_with_one(model, source, two_replicas):
    with two_replicas.scope():
        mirrored = a_model()
    mirrored.set_weights(model.get_weights())
    found = confidence.of_labels(mirrored, source.plain_batches(7), model.labels)
    assert_agrees(found, expected(model, images_of(source), model.labels))


def test_a_head_of_one_cluster_has_no_runner_up(source):
    message = r"num_clusters=\(5, 1\): a head with a single cluster has no runner-up"
    with pytest.raises(ValueError, match=message):
        confidence.predict(a_model((5, 1)), source.plain_batches(7), N)
    with pytest.raises(ValueError, match=message):
        confidence.of_labels(a_model((5, 1)), source.plain_batches(7), np.zeros((N, 2), int))
