import numpy as np
import pytest
from scipy.stats import entropy

from selabel_tf.evaluation import cluster_summary

LABELS = np.random.default_rng(0).integers(6, size=211)  # cluster 6 of 7 stays empty
CLASSES = np.random.default_rng(1).choice([2, 3, 9], size=211)


def test_a_summary_is_what_counting_by_hand_gives():
    found = cluster_summary.summarise(LABELS, 7, CLASSES)
    for k in range(6):
        values, counts = np.unique(CLASSES[np.equal(LABELS, k)], return_counts=True)
        assert found.sizes[k] == counts.sum()
        assert found.common[k] == values[counts.argmax()]
        assert found.purity[k] == pytest.approx(counts.max() / counts.sum())
        assert found.entropy[k] == pytest.approx(entropy(counts))
    assert found.sizes[6] == 0 and found.common[6] == -1
    assert np.isnan(found.purity[6]) and np.isnan(found.entropy[6])


def test_without_classes_there_are_sizes_only():
    found = cluster_summary.summarise(LABELS, 7)
    assert found.sizes.sum() == 211
    assert found.common is found.purity is found.entropy is None


def test_means_are_taken_over_the_images_of_a_cluster():
    rows = np.random.default_rng(2).normal(size=(211, 5))
    found = cluster_summary.cluster_means(rows, LABELS, 7)
    np.testing.assert_allclose(found[3], rows[LABELS == 3].mean(axis=0))
    assert np.isnan(found[6]).all()
    assert cluster_summary.cluster_means(rows[:, 0], LABELS, 7).shape == (7, 1)


def test_nearest_clusters_are_those_of_the_most_similar_mean_without_itself_and_empty_ones():
    angles = np.array([0.0, 0.1, 0.3, 1.0, 2.0, 3.2])[LABELS]
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.linspace(1, 5, 211)[:, None]  # length is no matter
    found = cluster_summary.nearest_clusters(rows, LABELS, 7)
    assert found.shape == (7, 6)
    np.testing.assert_array_equal(found[0], [1, 2, 3, 4, 5, -1])
    np.testing.assert_array_equal(found[4][:2], [3, 5])
    assert (found[6] == -1).all()


def test_an_only_cluster_has_no_neighbours():
    assert (cluster_summary.nearest_clusters(np.ones((3, 2)), np.zeros(3, int), 2) == -1).all()
