import numpy as np
import pytest
from sklearn.datasets import make_blobs

from selabel_tf.evaluation import clustering

N = 307


def two_labellings():
    rng = np.random.default_rng(0)
    classes = rng.integers(5, size=N)
    return np.where(rng.random(N) < 0.6, classes, rng.integers(7, size=N)), classes


def contingency(labels, classes):
    table = np.zeros((labels.max() + 1, classes.max() + 1))
    np.add.at(table, (labels, classes), 1)
    return table


def test_nmi_is_mutual_information_over_the_mean_entropy():
    labels, classes = two_labellings()
    joint = contingency(labels, classes) / N
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    filled = joint > 0
    information = np.sum(joint[filled] * np.log((joint / np.outer(rows, columns))[filled]))
    entropies = [-np.sum(p * np.log(p)) for p in (rows, columns)]
    assert clustering.nmi(labels, classes) == pytest.approx(information / np.mean(entropies))


def test_ari_is_the_pair_count_corrected_for_chance():
    labels, classes = two_labellings()
    table = contingency(labels, classes)

    def pairs(n):
        return np.sum(n * (n - 1) / 2)

    together, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = rows * columns / (N * (N - 1) / 2)
    assert clustering.ari(labels, classes) == pytest.approx((together - chance) / ((rows + columns) / 2 - chance))


def test_ami_takes_the_chance_level_of_nmi_away():
    rng = np.random.default_rng(1)
    labels, classes = rng.integers(97, size=N), rng.integers(5, size=N)
    assert clustering.nmi(labels, classes) > 0.2
    assert abs(clustering.ami(labels, classes)) < 0.1


@pytest.mark.parametrize("measure", [clustering.nmi, clustering.ami, clustering.ari])
def test_measures_do_not_care_how_clusters_are_numbered(measure):
    labels, classes = two_labellings()
    renumbered = np.random.default_rng(2).permutation(7)
    assert measure(renumbered[labels], classes) == pytest.approx(measure(labels, classes))
    assert measure(classes, labels) == pytest.approx(measure(labels, classes))
    assert measure(4 - classes, classes) == pytest.approx(1.0)


def test_scores_are_the_three_measures():
    labels, classes = two_labellings()
    assert clustering.scores(labels, classes) == {
        "nmi": clustering.nmi(labels, classes),
        "ami": clustering.ami(labels, classes),
        "ari": clustering.ari(labels, classes),
    }


def test_cluster_sizes_count_empty_clusters_too():
    np.testing.assert_array_equal(clustering.cluster_sizes([3, 1, 3, 3], 5), [0, 1, 0, 3, 0])


@pytest.mark.parametrize("labels", [[0, 5], [-1, 2]])
def test_labels_outside_the_clusters_are_refused(labels):
    with pytest.raises(ValueError, match=rf"labels run from {min(labels)} to {max(labels)}, expected 0 to 4"):
        clustering.cluster_sizes(labels, 5)


def test_share_changed_is_the_share_of_rows_that_differ():
    assert clustering.share_changed([0, 1, 2, 3, 4], [0, 1, 2, 4, 3]) == pytest.approx(2 / 5)
    assert clustering.share_changed([1, 2], [1, 2]) == 0.0


def test_kmeans_finds_separate_clouds_whatever_the_seed():
    points, classes = make_blobs(N, 3, centers=5, cluster_std=0.3, random_state=3)
    for seed in (0, 1):
        labels = clustering.kmeans_labels(points, 5, seed)
        assert labels.dtype == np.int32
        assert clustering.ari(labels, classes) == pytest.approx(1.0)


def test_kmeans_is_a_function_of_its_seed():
    points = np.random.default_rng(4).normal(size=(N, 7)).astype(np.float32)
    first, again, other = (clustering.kmeans_labels(points, 11, seed, num_starts=1) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert clustering.share_changed(first, other) > 0


def test_more_starts_of_kmeans_are_never_worse():
    points = np.random.default_rng(4).normal(size=(N, 7))

    def cost(labels):
        return sum(np.sum((points[labels == k] - points[labels == k].mean(axis=0)) ** 2) for k in range(11))

    one, many = (cost(clustering.kmeans_labels(points, 11, 5, num_starts=starts)) for starts in (1, 10))
    assert many < one


@pytest.mark.parametrize("k", [0, N + 1])
def test_kmeans_refuses_more_clusters_than_examples_or_none(k):
    with pytest.raises(ValueError, match=f"k={k} clusters of {N} examples. Choose k from 1 to {N}"):
        clustering.kmeans_labels(np.zeros((N, 2)), k)


def test_kmeans_refuses_what_it_cannot_cluster():
    with pytest.raises(ValueError, match=r"features have shape \(5, 2, 3\), expected \[N, D\]"):
        clustering.kmeans_labels(np.zeros((5, 2, 3)), 2)
    with pytest.raises(ValueError, match="features hold NaN or infinite values"):
        clustering.kmeans_labels(np.array([[0.0], [np.nan]]), 1)
    with pytest.raises(ValueError, match="num_starts=0 must be at least 1"):
        clustering.kmeans_labels(np.zeros((5, 2)), 2, num_starts=0)


@pytest.mark.parametrize("measure", [clustering.nmi, clustering.ami, clustering.ari, clustering.share_changed])
def test_labellings_of_different_length_are_refused(measure):
    with pytest.raises(ValueError, match="Both must label the same examples"):
        measure([0, 1, 1], [0, 1])


@pytest.mark.parametrize("bad", [[[0, 1], [1, 0]], [], [0.5, 1.0]])
def test_what_is_no_labelling_is_refused(bad):
    with pytest.raises(ValueError, match=r"labels has shape .*, expected \[N\] integers"):
        clustering.nmi(bad, [0, 1])
