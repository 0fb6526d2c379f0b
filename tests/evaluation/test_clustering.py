import itertools

import numpy as np
import pytest
from sklearn import metrics
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


@pytest.mark.parametrize("measure", [clustering.nmi, clustering.ami, clustering.ari, clustering.accuracy])
def test_measures_do_not_care_how_clusters_are_numbered(measure):
    labels, classes = two_labellings()
    renumbered = np.random.default_rng(2).permutation(7)
    assert measure(renumbered[labels], classes) == pytest.approx(measure(labels, classes))
    assert measure(classes, labels) == pytest.approx(measure(labels, classes))
    assert measure(4 - classes, classes) == pytest.approx(1.0)


# Every kind of labelling pair: usual, unbalanced, one cluster, one example each, one example in all, far-off numbers.
PAIRS = {
    "usual": two_labellings(),
    "unbalanced": (np.repeat([0, 1, 2], [2, 5, 300]), np.arange(N) % 7),
    "identical": (np.arange(N) % 5, np.arange(N) % 5),
    "one cluster": (np.zeros(N, np.int64), np.arange(N) % 3),
    "one cluster and one class": (np.zeros(N, np.int64), np.ones(N, np.int64)),
    "an example a cluster": (np.arange(N), np.arange(N) % 3),
    "an example a cluster and a class": (np.arange(N), np.arange(N)[::-1]),
    "a single example": (np.array([3]), np.array([4])),
    "far numbers": (two_labellings()[0] * 1_000_003 - 7, two_labellings()[1]),
    "32 and 8 bits": (two_labellings()[0].astype(np.int32), two_labellings()[1].astype(np.uint8)),
}


@pytest.mark.parametrize("labels, classes", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize(
    "ours, theirs",
    [
        (clustering.nmi, metrics.normalized_mutual_info_score),
        (clustering.ami, metrics.adjusted_mutual_info_score),
        (clustering.ari, metrics.adjusted_rand_score),
    ],
)
def test_measures_are_those_of_scikit_learn(ours, theirs, labels, classes):
    assert ours(labels, classes) == pytest.approx(theirs(classes, labels), abs=1e-9)


def test_the_expected_information_is_the_mean_over_all_rearrangements():
    labels, classes = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 1])
    tables = [clustering.contingency.count(labels, np.array(order)) for order in itertools.permutations(classes)]
    assert tables[0].expected_information == pytest.approx(np.mean([table.information for table in tables]))


def test_accuracy_is_that_of_the_best_of_all_matchings():
    labels, classes = two_labellings()  # seven clusters, five classes
    table = contingency(labels, classes)
    best = max(sum(table[k, c] for c, k in enumerate(chosen)) for chosen in itertools.permutations(range(7), 5))
    assert clustering.accuracy(labels, classes) == pytest.approx(best / N)
    assert clustering.accuracy(classes, labels) == pytest.approx(best / N)


def test_a_renumbered_copy_of_the_classes_is_fully_accurate():
    classes = two_labellings()[1]
    assert clustering.accuracy(np.array([3, 0, 4, 1, 2])[classes], classes) == 1.0


def test_clusters_left_over_by_the_matching_count_as_wrong():
    # Class 0 is split in halves: one of them is matched, the other is not, though both are pure.
    labels, classes = [0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1]
    assert clustering.accuracy(labels, classes) == pytest.approx(4 / 6)
    assert clustering.purity(labels, classes) == 1.0
    # Two classes in one cluster: one of them has no cluster left.
    assert clustering.accuracy(classes, labels) == pytest.approx(4 / 6)
    assert clustering.purity(classes, labels) == pytest.approx(4 / 6)


def test_purity_is_the_share_of_the_most_common_class():
    labels, classes = two_labellings()
    assert clustering.purity(labels, classes) == pytest.approx(contingency(labels, classes).max(axis=1).sum() / N)


def test_entropies_of_a_handmade_case_are_in_nats():
    labels, classes = [0, 0, 0, 0, 2, 2, 2, 4], [0, 1, 2, 3, 5, 5, 0, 1]
    thirds = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    found = clustering.class_entropies(labels, classes, 5)
    np.testing.assert_allclose(found, [np.log(4), np.nan, thirds, np.nan, 0.0], atol=1e-12)
    assert clustering.class_entropy(labels, classes) == pytest.approx((4 * np.log(4) + 3 * thirds) / 8)


def test_entropy_within_clusters_is_that_of_the_classes_less_the_information():
    labels, classes = two_labellings()
    known = metrics.mutual_info_score(classes, labels)
    sizes = np.bincount(classes) / N
    assert clustering.class_entropy(labels, classes) == pytest.approx(-np.sum(sizes * np.log(sizes)) - known)


def test_entropies_of_labels_outside_the_clusters_are_refused():
    with pytest.raises(ValueError, match="labels run from 0 to 7, expected 0 to 4"):
        clustering.class_entropies([0, 7], [0, 1], 5)


def test_scores_are_all_measures():
    labels, classes = two_labellings()
    assert clustering.scores(labels, classes) == {
        "nmi": clustering.nmi(labels, classes),
        "ami": clustering.ami(labels, classes),
        "ari": clustering.ari(labels, classes),
        "accuracy": clustering.accuracy(labels, classes),
        "purity": clustering.purity(labels, classes),
        "entropy": clustering.class_entropy(labels, classes),
    }


def test_many_heads_are_summed_up_by_mean_spread_and_best():
    found = clustering.over_heads([{"nmi": 0.2, "entropy": 1.0}, {"nmi": 0.6, "entropy": 3.0}])
    assert found["mean"] == pytest.approx({"nmi": 0.4, "entropy": 2.0})
    assert found["std"] == pytest.approx({"nmi": 0.2, "entropy": 1.0})
    assert found["best"] == {"nmi": 0.6, "entropy": 1.0}  # of entropy, less is better


def test_heads_that_cannot_be_summed_up_are_refused():
    with pytest.raises(ValueError, match="no heads to sum up"):
        clustering.over_heads([])
    with pytest.raises(ValueError, match="Heads were measured differently"):
        clustering.over_heads([{"nmi": 0.2}, {"ami": 0.2}])


def test_nmi_between_heads_is_that_of_every_two_columns():
    first, second = two_labellings()
    heads = np.stack([first, second, 6 - first], axis=1)
    between = clustering.nmi_between_heads(heads)
    expected = [[metrics.normalized_mutual_info_score(one, other) for one in heads.T] for other in heads.T]
    np.testing.assert_allclose(between, expected, atol=1e-12)
    assert between[0, 2] == pytest.approx(1.0)  # a head that copies another


@pytest.mark.parametrize("bad", [[0, 1], [[0.5, 1.0]], np.zeros((3, 0), np.int64)])
def test_what_is_no_set_of_heads_is_refused(bad):
    with pytest.raises(ValueError, match=r"labels has shape .*, expected \[N, H\] integers"):
        clustering.nmi_between_heads(bad)


def test_many_examples_in_thousands_of_clusters_are_counted_by_what_occurs():
    rng = np.random.default_rng(5)
    labels, classes = rng.integers(3001, size=300_007), rng.integers(997, size=300_007)
    labels[: len(labels) // 2] = classes[: len(labels) // 2] * 3
    table = clustering.contingency.count(labels, classes)
    assert len(table.counts) <= len(labels)
    found = clustering.scores(labels, classes)
    assert 0.2 < found["ami"] < found["nmi"]
    assert abs(clustering.ami(rng.permutation(labels), classes)) < 3e-3  # chance, which NMI does not see
    assert found["purity"] > 0.5


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


@pytest.mark.parametrize(
    "measure",
    [
        clustering.nmi,
        clustering.ami,
        clustering.ari,
        clustering.accuracy,
        clustering.purity,
        clustering.class_entropy,
        clustering.scores,
        clustering.share_changed,
    ],
)
def test_labellings_of_different_length_are_refused(measure):
    with pytest.raises(ValueError, match="Both must label the same examples"):
        measure([0, 1, 1], [0, 1])


@pytest.mark.parametrize("bad", [[[0, 1], [1, 0]], [], [0.5, 1.0]])
def test_what_is_no_labelling_is_refused(bad):
    with pytest.raises(ValueError, match=r"labels has shape .*, expected \[N\] integers"):
        clustering.nmi(bad, [0, 1])
