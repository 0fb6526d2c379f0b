"""K-means labels against scikit-learn's own pipeline, and what happens to clusters that nobody chose."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score as nmi
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from selabel_tf.labelling import kmeans

N, D = 499, 83


def features(size=(N, D)):
    generator = np.random.default_rng(0)
    return (generator.normal(size=size) @ generator.normal(size=(size[1], size[1])) + 3).astype(np.float32)


@pytest.mark.parametrize(("dimensions", "components"), [(D, 64), (D, 17), (23, 64)])
def test_whitened_rows_are_those_of_scikit_learn(dimensions, components):
    z = features((N, dimensions))
    rows = kmeans.whitened(z, components)
    kept = min(components, dimensions)
    expected = make_pipeline(PCA(kept, whiten=True, svd_solver="full"), Normalizer()).fit_transform(z.astype(float))
    assert rows.shape == (N, kept) and rows.dtype == np.float32
    np.testing.assert_allclose(rows @ rows.T, expected @ expected.T, atol=1e-4)  # whatever the signs of directions


def test_rows_are_the_same_in_several_blocks(monkeypatch):
    whole = kmeans.whitened(features())
    monkeypatch.setattr(kmeans, "ROWS_PER_BLOCK", 64)
    np.testing.assert_allclose(np.abs(kmeans.whitened(features())), np.abs(whole), atol=1e-4)


def test_directions_that_are_only_rounding_error_are_left_out():
    generator = np.random.default_rng(1)
    z = (generator.normal(size=(N, 3)) @ generator.normal(size=(3, 31))).astype(np.float32)
    assert kmeans.whitened(z).shape == (N, 3)


def test_labels_agree_with_the_classes_as_well_as_scikit_learns_pipeline_does():
    images, classes = load_digits(return_X_y=True)
    ours, theirs = [], []
    for seed in range(3):
        pipeline = make_pipeline(PCA(20, whiten=True), Normalizer(), KMeans(20, n_init=1, random_state=seed))
        theirs.append(nmi(classes, pipeline.fit(images)[-1].labels_))
        ours.append(nmi(classes, kmeans.cluster(kmeans.whitened(images, 20), 20, seed)))
    spread = max(np.ptp(theirs), 0.02)
    assert np.mean(theirs) > 0.6
    assert np.mean(ours) > np.mean(theirs) - 2 * spread


def test_the_same_seed_gives_the_same_labels():
    rows = kmeans.whitened(features())
    one, again, other = (kmeans.cluster(rows, 29, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert one.dtype == np.int32 and one.shape == (N,)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # fewer distinct points than clusters
@pytest.mark.parametrize("distinct", [1, 5])
def test_every_label_is_in_use_even_where_points_coincide(distinct):
    points = np.random.default_rng(2).normal(size=(distinct, 3)).astype(np.float32)
    labels = kmeans.cluster(points[np.arange(97) % distinct], 11, seed=0)
    assert (np.bincount(labels, minlength=11) >= 97 // 11 // 2).all()


def test_a_network_whose_features_are_all_alike_still_gets_labels():
    rows = kmeans.whitened(np.full((N, 7), 0.3, np.float32))
    assert rows.shape[0] == N and np.isfinite(rows).all()
    np.testing.assert_array_equal(rows, 0)


def test_an_empty_cluster_takes_half_of_the_largest_where_that_is_widest():
    # cluster 0: a line of seven points along the second axis; cluster 2: two points; 1 and 3 empty
    rows = np.array([[0.1, 6], [0, 1], [0, 4], [0, 3], [0.1, 5], [0, 0], [0, 2], [9, 0], [9, 1]], np.float32)
    before = np.array([0, 0, 0, 0, 0, 0, 0, 2, 2], np.int32)
    after = kmeans.filled(rows, before, 4)
    assert np.bincount(after).tolist() == [2, 3, 2, 2]  # seven, then the four that are left, cut in half
    groups = [set(rows[after == k, 1].tolist()) for k in range(4)]
    assert groups[2] == {0, 1} and (after[-2:] == 2).all()
    ends = sorted(groups[1])
    assert ends in ([0, 1, 2], [4, 5, 6])  # three of one end, not three at random
    np.testing.assert_array_equal(before, [0, 0, 0, 0, 0, 0, 0, 2, 2])  # the argument is left alone


def test_full_clusters_stay_as_they_are():
    labels = np.array([0, 1, 2, 2, 2, 2], np.int32)
    np.testing.assert_array_equal(kmeans.filled(np.zeros((6, 2)), labels, 3), labels)


def test_what_cannot_be_clustered_is_refused():
    broken = features()
    broken[5, 2] = np.nan
    with pytest.raises(ValueError, match="features hold NaN or infinite values: K-means cannot label them"):
        kmeans.whitened(broken)
    with pytest.raises(ValueError, match="5 examples cannot fill 7 clusters"):
        kmeans.cluster(np.zeros((5, 2), np.float32), 7, 0)
