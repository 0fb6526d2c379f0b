"""Sums over rows in threads, against float64 NumPy."""

import numpy as np
import pytest
import threadpoolctl

from selabel_tf.labelling import host
from selabel_tf.labelling.host import Host

ROWS, CLUSTERS, LAMBDA = 211, 17, 25.0
LOG_P = np.random.default_rng(0).normal(size=(ROWS, CLUSTERS)).astype(np.float32)
LOG_ALPHA = np.random.default_rng(1).normal(size=CLUSTERS)


@pytest.fixture(params=[host.PIECE, 5 * CLUSTERS, 1], ids=["one piece", "pieces of five rows", "pieces of a row"])
def piece(request, monkeypatch):
    monkeypatch.setattr(host, "PIECE", request.param)
    monkeypatch.setattr(host, "LEAST_ROWS", 1)


def softmax(scores):
    exponents = np.exp(scores - scores.max(1, keepdims=True))
    return exponents / exponents.sum(1, keepdims=True)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_the_plan_and_its_certificate_are_those_of_float64(piece, offset):
    log_p = LOG_P + np.float32(offset) * np.arange(ROWS, dtype=np.float32)[:, None]
    scores = LAMBDA * log_p.astype(np.float64) + LOG_ALPHA
    plan, best = softmax(scores), scores.max(1)
    kernel = np.empty_like(log_p)
    with Host() as threads:
        masses, best_score, excess = threads.plan_sums(log_p, LAMBDA, LOG_ALPHA, kernel)
        again = threads.plan_sums(log_p, LAMBDA, LOG_ALPHA)
    np.testing.assert_allclose(masses, plan.sum(0), rtol=1e-5)
    assert best_score == pytest.approx(best.sum(), rel=1e-7)
    assert excess == pytest.approx((plan * (scores - best[:, None])).sum(), rel=1e-5)
    np.testing.assert_allclose(kernel, np.exp(scores - best[:, None]), rtol=2e-5, atol=2e-28)
    np.testing.assert_array_equal(again[0], masses)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_makes_all_sums_nan(piece, value):
    log_p = LOG_P.copy()
    log_p[101, 5] = value
    with Host() as threads:
        assert np.isnan(threads.plan_sums(log_p, LAMBDA, LOG_ALPHA)[0]).all()
        assert not np.isfinite(threads.gaps(log_p)[0])


def test_gaps_to_the_row_maximum(piece):
    expected = LOG_P.astype(np.float64) - LOG_P.max(1, keepdims=True)
    with Host() as threads:
        spread, largest = threads.gaps(LOG_P)
    assert spread == pytest.approx(-expected.mean(1).sum(), rel=1e-6)
    np.testing.assert_allclose(largest, expected.max(0), atol=1e-6)


def test_gaps_of_large_finite_scores_do_not_overflow():
    with Host() as threads:
        spread, largest = threads.gaps(np.array([[3e38, -3e38], [0, 0]], np.float32))
    assert np.isfinite(spread) and largest.tolist() == [0, 0]


def as_half(kernel):
    return (kernel.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("form, tolerance", [(np.asarray, 1e-6), (as_half, 1e-2)])
def test_a_kernel_gives_its_sums_and_its_large_shares(piece, form, tolerance):
    kernel = np.exp(LOG_P - LOG_P.max(1, keepdims=True))
    scaling = np.exp(LOG_ALPHA).astype(np.float32)
    rows = kernel.astype(np.float64) @ scaling
    shares = kernel * scaling / rows[:, None]
    blocks = [form(kernel[:101]), form(kernel[101:])]
    with Host() as threads:
        sums = threads.kernel_sums(blocks, scaling)
        counts, columns, values = map(np.concatenate, zip(*threads.large_shares(blocks, scaling, 0.1), strict=True))
    np.testing.assert_allclose(sums, kernel.T.astype(np.float64) @ (1 / rows), rtol=tolerance)
    if form is np.asarray:
        np.testing.assert_array_equal(counts, (shares > 0.1).sum(1))
        np.testing.assert_array_equal(columns, np.nonzero(shares > 0.1)[1])
        np.testing.assert_allclose(values, shares[shares > 0.1], rtol=1e-5)


def test_a_kernel_gives_its_certificate(piece):
    kernel = np.exp(LOG_P - LOG_P.max(1, keepdims=True))
    scaling = np.exp(LOG_ALPHA).astype(np.float32)
    products = kernel.astype(np.float64) * scaling
    best = np.log(products.max(1))
    excess = (products / products.sum(1, keepdims=True) * (np.log(products) - best[:, None])).sum()
    with Host() as threads:
        found = threads.kernel_certificate([kernel[:101], kernel[101:]], scaling)
    np.testing.assert_allclose(found, [best.sum(), excess], rtol=1e-5)


def test_blas_has_its_threads_back_afterwards():
    def threads():
        return [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]

    before = threads()
    with Host():
        assert set(threads()) == {1}
    assert threads() == before
    with pytest.raises(RuntimeError, match="inside"), Host():
        raise RuntimeError("inside")
    assert threads() == before
