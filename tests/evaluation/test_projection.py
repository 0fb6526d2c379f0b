import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from selabel_tf.evaluation import projection


def groups(count, seed=0):
    generator = np.random.default_rng(seed)
    which = np.arange(count) % 3
    return which, generator.normal(size=(3, 13))[which] * 5 + generator.normal(size=(count, 13))


def test_few_points_are_shown_by_their_principal_components():
    _, features = groups(47)
    found = projection.project(features)
    assert list(found) == ["PCA"]
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    expected = PCA(2).fit_transform(unit)
    for axis in (0, 1):  # up to sign, shift and one scale
        assert abs(np.corrcoef(found["PCA"][:, axis], expected[:, axis])[0, 1]) > 1 - 1e-6
    assert found["PCA"].min() == 0 and found["PCA"].max() == 1


def test_more_points_keep_their_neighbours_by_tsne_the_same_way_every_time():
    _, features = groups(307)
    found = projection.project(features)
    assert list(found) == ["t-SNE", "PCA"]
    unit = projection.unit_rows(features)
    assert trustworthiness(unit, found["t-SNE"], n_neighbors=7) > trustworthiness(unit, found["PCA"], n_neighbors=7)
    np.testing.assert_array_equal(projection.project(features)["t-SNE"], found["t-SNE"])


def test_what_spans_no_plane_has_no_map():
    assert projection.project(np.ones((1, 5))) == {}
    assert projection.project(np.ones((7, 1))) == {}
    assert np.isfinite(projection.project(np.zeros((7, 5)))["PCA"]).all()
