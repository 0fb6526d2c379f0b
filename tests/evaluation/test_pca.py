import numpy as np
import pytest

from selabel_tf.evaluation import pca

N, D = 211, 17


def features(seed=0, rows=N):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, D)) * np.linspace(3, 1, D) + rng.normal(size=D)


def test_components_are_the_eigenvectors_of_the_covariance():
    bank, queries = features(), features(1, 29) + 5
    found = pca.fit(bank, 5)
    values, vectors = np.linalg.eigh(np.cov(bank.T))
    expected = (queries - bank.mean(axis=0)) @ vectors[:, ::-1][:, :5]
    projected = found.transform(queries)
    np.testing.assert_allclose(np.abs(projected), np.abs(expected), atol=1e-9)
    assert found.explained_variance_ratio_.sum() == pytest.approx(values[::-1][:5].sum() / values.sum())


def test_a_large_problem_gives_the_same_bits_every_time():
    bank = np.random.default_rng(0).normal(size=(1103, 1201)).astype(np.float32)  # solved with random numbers
    first, second, other = (pca.fit(bank, 7, seed=seed).transform(bank) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_the_paper_has_128_dimensions():
    bank = np.random.default_rng(0).normal(size=(149, 131))
    assert pca.fit(bank).transform(bank).shape == (149, 128)


@pytest.mark.parametrize("dims", [0, -1, D + 1])
def test_more_dimensions_than_features_or_none_are_refused(dims):
    with pytest.raises(
        ValueError, match=f"PCA to {dims} dimensions of {N} rows with {D} features. Choose from 1 to {D}"
    ):
        pca.fit(features(), dims)


def test_more_dimensions_than_rows_are_refused():
    with pytest.raises(ValueError, match=r"PCA to 7 dimensions of 5 rows with 17 features\. Choose from 1 to 5"):
        pca.fit(features(rows=5), 7)


def test_all_dimensions_are_allowed_and_keep_distances():
    bank = features()
    found = pca.fit(bank, D).transform(bank)
    between = np.linalg.norm(bank[3:11] - bank[100:108], axis=1)
    np.testing.assert_allclose(np.linalg.norm(found[3:11] - found[100:108], axis=1), between)


def test_images_and_values_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match=r"The bank has shape \(7, 5, 3\), expected \[rows, features\]"):
        pca.fit(np.ones((7, 5, 3)), 2)
    bank = features()
    bank[3, 5] = np.inf
    with pytest.raises(ValueError, match="NaN or infinite values"):
        pca.fit(bank, 2)
