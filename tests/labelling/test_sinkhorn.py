"""The solver against float64 NumPy, exact linear programming, and degenerate scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.special import log_softmax, logsumexp

from selabel_tf.labelling import reading, sinkhorn
from selabel_tf.labelling.rounding import hard_labels
from selabel_tf.labelling.sinkhorn import solve


def network(rows, clusters, *, scale=1.0, seed=0):
    """Log-probabilities of a network, the more confident the larger the scale: float32 [rows, clusters]."""
    logits = scale * np.random.default_rng(seed).normal(size=(rows, clusters))
    return log_softmax(logits, axis=1).astype(np.float32)


def two_updates(log_p, lambda_, weights, tolerance=1e-9, max_updates=20_000):
    """The paper's iteration in float64, in log space: log_alpha [K] with weighted mean zero."""
    scores, log_alpha = lambda_ * log_p.astype(np.float64), np.zeros(log_p.shape[1])
    for _ in range(max_updates):
        log_beta = -np.log(len(log_p)) - logsumexp(scores + log_alpha, axis=1)
        log_mass = logsumexp(scores + log_beta[:, None], axis=0) + log_alpha
        if np.abs(np.exp(log_mass) - weights).sum() < tolerance:
            break
        log_alpha = log_alpha + np.log(weights) - log_mass
    return log_alpha - weights @ log_alpha


def two_matrix_updates(log_p, lambda_, updates=3000):
    """The same for uniform weights, with products of matrices: fast, for scores that float64 can exponentiate."""
    scores = lambda_ * log_p.astype(np.float64)
    kernel, alpha = np.exp(scores - scores.max(1, keepdims=True)), np.ones(log_p.shape[1])
    for _ in range(updates):
        alpha = len(kernel) / len(alpha) / ((1 / (kernel @ alpha)) @ kernel)
    return np.log(alpha) - np.log(alpha).mean()


def plan(log_p, lambda_, log_alpha):
    """N times the plan in float64 [N, K]: rows sum to one."""
    return np.exp(log_softmax(lambda_ * log_p.astype(np.float64) + log_alpha, axis=1))


@pytest.fixture(params=["newton", "anderson"])
def method(request, monkeypatch):
    """Both methods on the same small problems."""
    monkeypatch.setattr(sinkhorn, "NEWTON_CLUSTERS", 256 if request.param == "newton" else 0)
    return request.param


@pytest.mark.parametrize("lambda_, scale", [(1.0, 1.0), (10.0, 1.0), (25.0, 0.3), (25.0, 1.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_labels_scalings_and_cost_are_those_of_the_float64_two_update_iteration(method, lambda_, scale, weighted):
    log_p = network(1009, 13, scale=scale)
    weights = np.arange(5.0, 18.0) if weighted else np.ones(13)
    weights /= weights.sum()
    result = solve(log_p, lambda_=lambda_, cluster_weights=7 * weights, tolerance=1e-6)
    expected = two_updates(log_p, lambda_, weights)
    assert result.converged
    np.testing.assert_allclose(result.log_alpha, expected, atol=1e-3)
    labels = np.argmax(lambda_ * log_p.astype(np.float64) + expected, axis=1)
    assert np.mean(hard_labels(log_p, result.log_alpha, lambda_=lambda_) == labels) >= 0.999
    cost = -(plan(log_p, lambda_, expected) * log_p).sum(1).mean()
    assert result.cost == pytest.approx(cost, rel=1e-4)


def test_the_default_tolerance_gives_the_float64_labels_of_a_confident_network():
    log_p = network(1009, 11, scale=3.0)
    result = solve(log_p)
    labels = np.argmax(25 * log_p.astype(np.float64) + two_updates(log_p, 25.0, np.full(11, 1 / 11), 1e-7), axis=1)
    assert np.mean(hard_labels(log_p, result.log_alpha) == labels) >= 0.999


def test_every_field_is_what_its_definition_says(method):
    log_p, lambda_ = network(499, 7, scale=2.0), 10.0
    result = solve(log_p, lambda_=lambda_)
    share = plan(log_p, lambda_, result.log_alpha)
    f = result.log_alpha / lambda_
    assert result.log_alpha.dtype == np.float64 and result.log_alpha.mean() == pytest.approx(0, abs=1e-9)
    assert result.marginal_error == pytest.approx(np.abs(share.mean(0) - 1 / 7).sum(), abs=2e-6)
    assert result.cost == pytest.approx(-(share * log_p).sum(1).mean(), rel=1e-5)
    assert result.bound == pytest.approx((-log_p - f).min(1).mean() + f.mean(), rel=1e-5)
    assert result.converged and result.marginal_error <= 1e-4


def test_cost_and_bound_close_in_on_the_exact_optimum_as_lambda_grows():
    log_p = network(90, 6, scale=2.0)  # 15 rows for each of 6 clusters: the relaxed optimum is an assignment
    rows, slots = linear_sum_assignment(-np.repeat(log_p.astype(np.float64), 15, axis=1))
    optimum = -log_p[rows, slots // 15].astype(np.float64).mean()
    gaps = []
    for lambda_ in (3.0, 10.0, 30.0, 100.0):
        result = solve(log_p, lambda_=lambda_, tolerance=1e-7)
        assert result.converged
        assert result.bound <= optimum + 1e-5 <= result.cost + 2e-5
        gaps.append(result.cost - optimum)
    assert gaps == sorted(gaps, reverse=True) and gaps[-1] < 0.01 * gaps[0] + 1e-5


def test_a_confident_network_needs_few_readings():
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 10, 1797)
    logits = 6 * rng.normal(size=(1797, 20)) + 6 * rng.normal(size=(10, 20))[classes]
    log_p = log_softmax(logits, axis=1).astype(np.float32)
    for tolerance in (1e-3, 1e-6):
        result = solve(log_p, tolerance=tolerance)
        assert result.converged and result.num_passes <= 40


DEGENERATE = {
    "uniform": np.full([97, 13], -2.0),
    "one unwanted cluster": np.where(np.arange(13) == 5, -1000.0, network(97, 13)),
    "three unwanted clusters": np.where(np.arange(13) < 3, -1000.0, network(97, 13)),
    "duplicated rows": np.repeat(network(11, 13, scale=3.0), 9, axis=0),
    "as many rows as clusters": network(13, 13, scale=3.0),
    "one cluster": np.zeros([5, 1]),
    "log p down to -1000": np.maximum(network(97, 13, scale=300.0), -1000),
    "all want the same": np.where(np.arange(13) == 5, 0.0, network(97, 13) - 50),
    "rows far from normalised": network(97, 13) + 1e4 * np.arange(97)[:, None],
}


@pytest.mark.parametrize("lambda_", [1.0, 25.0, 1000.0])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_scores_are_solved(method, name, lambda_):
    log_p = DEGENERATE[name].astype(np.float32)
    result = solve(log_p, lambda_=lambda_, tolerance=1e-3)
    masses = plan(log_p, lambda_, result.log_alpha).mean(0)
    assert np.isfinite([*result.log_alpha, result.cost, result.bound]).all()
    assert result.converged
    assert np.abs(masses - 1 / len(masses)).sum() <= 1.1e-3


@settings(derandomize=True, deadline=None, database=None, max_examples=40)
@given(
    st.integers(1, 17),
    st.integers(0, 60),
    st.sampled_from([1.0, 7.0, 25.0, 300.0]),
    st.sampled_from([0.0, 0.01, 1.0, 6.0, 50.0]),
    st.integers(0, 3),
    st.booleans(),
)
def test_the_certificate_is_true_for_any_scores(clusters, more, lambda_, scale, seed, weighted):
    log_p = network(clusters + more, clusters, scale=scale, seed=seed)
    weights = np.random.default_rng(seed).uniform(0.2, 1, clusters) if weighted else np.ones(clusters)
    weights /= weights.sum()
    result = solve(log_p, lambda_=lambda_, cluster_weights=weights, tolerance=1e-3, max_passes=300)
    masses = plan(log_p, lambda_, result.log_alpha).mean(0)
    assert np.abs(masses - weights).sum() == pytest.approx(result.marginal_error, abs=3e-4)
    assert result.converged == (result.marginal_error <= 1e-3)
    assert result.num_passes <= 300
    slack = result.marginal_error * np.ptp(log_p) + 1e-4
    assert result.bound <= result.cost + slack


class Half(list):
    """Row blocks that leave the solver only half precision to keep beside them."""

    kernel_form = ("half", None)


@pytest.mark.parametrize("lambda_", [10.0, 25.0])
def test_many_clusters_have_the_float64_labels_whatever_the_kernel_is_kept_in(lambda_):
    log_p = network(1511, 283)
    expected = two_matrix_updates(log_p, lambda_)
    labels = np.argmax(lambda_ * log_p.astype(np.float64) + expected, axis=1)
    cost = -(plan(log_p, lambda_, expected) * log_p).sum(1).mean()
    for source in (log_p, Half([log_p[:1009], log_p[1009:]])):
        result = solve(source, lambda_=lambda_, tolerance=3e-5)
        assert result.converged and result.num_passes <= 40
        assert np.mean(hard_labels(log_p, result.log_alpha, lambda_=lambda_) == labels) >= 0.999
        assert result.cost == pytest.approx(cost, rel=1e-4)


def test_newton_takes_over_where_anderson_is_slow(monkeypatch):
    log_p = np.maximum(network(97, 13, scale=300.0), -1000)
    monkeypatch.setattr(sinkhorn, "NEWTON_CLUSTERS", 0)
    assert solve(log_p, max_passes=400).converged
    monkeypatch.setattr(sinkhorn, "HESSIAN_OPERATIONS", 97 * 13**2 - 1)
    assert not solve(log_p, max_passes=400).converged


def test_row_blocks_and_one_matrix_have_the_same_solution(method):
    log_p = network(211, 17)
    whole, blocks = (solve(source, tolerance=1e-5) for source in (log_p, [log_p[:101], log_p[101:103], log_p[103:]]))
    np.testing.assert_allclose(blocks.log_alpha, whole.log_alpha, atol=1e-3)
    assert blocks.cost == pytest.approx(whole.cost, rel=1e-5)


def test_the_passes_counted_are_the_readings_made(method):
    class Counting(list):
        finished = 0

        def __iter__(self):
            yield from super().__iter__()
            self.finished += 1

    source, records = Counting([network(211, 17, scale=6.0)]), []
    result = solve(source, on_pass=records.append)
    assert result.num_passes == len(records)
    if method == "newton":
        assert source.finished == result.num_passes
    else:  # a kernel is read instead of the scores, which make it and have the last word
        assert 2 <= source.finished <= 10 < result.num_passes
    assert [record.number for record in records] == list(range(1, result.num_passes + 1))
    assert records[0].lambda_ == records[-1].lambda_ == 25.0
    assert records[-1].marginal_error == result.marginal_error


def test_a_new_size_costs_no_new_trace(method):
    solve(network(53, 5))
    counts = [f.experimental_get_tracing_count() for f in reading._BLOCK_SUMS.values()]
    for rows, clusters in ((59, 7), (61, 11), (8192 + 67, 2)):
        solve(network(rows, clusters))
    solve(network(71, 3), tolerance=1e-7)
    after = [f.experimental_get_tracing_count() for f in reading._BLOCK_SUMS.values()]
    assert max(after) == 1 and all(new - old in (0, 1 - old) for new, old in zip(after, counts, strict=True))


def test_a_warm_start_saves_passes_and_a_poor_one_does_no_harm(method):
    log_p = network(499, 19, scale=4.0)
    cold = solve(log_p)
    warm = solve(log_p, log_alpha=cold.log_alpha + 3.0)
    assert warm.num_passes == 1 and warm.converged
    nearby = solve(log_p + 0.02 * network(499, 19, seed=1), log_alpha=cold.log_alpha)
    assert nearby.converged and nearby.num_passes <= cold.num_passes
    poor = solve(log_p, log_alpha=1e4 * np.random.default_rng(0).normal(size=19))
    assert poor.converged and poor.num_passes <= cold.num_passes + 5
    np.testing.assert_allclose(poor.log_alpha, cold.log_alpha, atol=0.1)


@pytest.mark.parametrize("max_passes", [1, 2, 3])
def test_giving_up_is_honest(method, max_passes):
    log_p = network(211, 17, scale=6.0)
    result = solve(log_p, max_passes=max_passes)
    error = np.abs(plan(log_p, 25.0, result.log_alpha).mean(0) - 1 / 17).sum()
    assert not result.converged and result.num_passes == max_passes
    assert result.marginal_error == pytest.approx(error, abs=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_with_their_row(value):
    log_p = network(211, 17)
    log_p[113, 3] = log_p[150, 1] = value
    for source in (log_p, [log_p[:101], log_p[101:]]):
        with pytest.raises(ValueError, match="NaN or infinite value in row 113"):
            solve(source)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"lambda_": 0.0}, "lambda_=0.0"),
        ({"lambda_": -1.0}, "lambda_=-1.0"),
        ({"lambda_": np.nan}, "lambda_=nan"),
        ({"lambda_": np.inf}, "lambda_=inf"),
        ({"tolerance": 0.0}, "tolerance=0.0"),
        ({"tolerance": np.nan}, "tolerance=nan"),
        ({"max_passes": 0}, "max_passes=0"),
        ({"cluster_weights": [1.0, 2.0]}, "one weight for each of the 3 clusters"),
        ({"cluster_weights": [1.0, 0.0, 2.0]}, "must be positive"),
        ({"cluster_weights": [1.0, np.nan, 2.0]}, "must be positive"),
        ({"log_alpha": [1.0, 2.0]}, r"expected \(3,\)"),
        ({"log_alpha": [1.0, np.nan, 2.0]}, "NaN or infinite"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        solve(network(7, 3), **options)
