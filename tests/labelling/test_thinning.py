"""Newton's step on large entries, against the step with the whole Hessian in float64."""

import numpy as np
import pytest

from selabel_tf.labelling import sinkhorn, thinning
from selabel_tf.labelling.kernel import Kernel
from selabel_tf.labelling.reading import Reader
from selabel_tf.labelling.scores import RowBlocks
from selabel_tf.labelling.sinkhorn import solve
from selabel_tf.labelling.thinning import Thinned

ROWS, CLUSTERS, LAMBDA = 503, 13, 25.0
LOG_P = np.random.default_rng(0).normal(size=(ROWS, CLUSTERS)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).uniform(1, 2, CLUSTERS)
WEIGHTS /= WEIGHTS.sum()


def plan(log_alpha, log_p=LOG_P, lambda_=LAMBDA):
    scores = lambda_ * log_p.astype(np.float64) + log_alpha
    exponents = np.exp(scores - scores.max(1, keepdims=True))
    return exponents / exponents.sum(1, keepdims=True)


def thinned(log_alpha, threshold=1e-8, tolerance=1e-7):
    shares = plan(log_alpha)
    large = shares > threshold
    return Thinned(large.sum(1), np.nonzero(large)[1], shares[large], log_alpha, WEIGHTS, tolerance)


def whole_step(log_alpha):
    """The same step from the dense Hessian."""
    shares = plan(log_alpha)
    masses = shares.mean(0)
    damping = max(thinning.LEAST_DAMPING, thinning.DAMPING / thinning.EASING * np.abs(masses - WEIGHTS).sum())
    hessian = np.diag(masses + damping * WEIGHTS) - shares.T @ shares / ROWS + np.outer(WEIGHTS, WEIGHTS)
    step = np.linalg.solve(hessian, masses * np.log(WEIGHTS / masses))
    return log_alpha + step - WEIGHTS @ step


@pytest.mark.parametrize("move", [0.0, 2.0])
def test_a_step_is_that_of_the_whole_hessian_also_away_from_its_base(move, monkeypatch):
    monkeypatch.setattr(thinning, "STEPS", 2)  # the place itself, and one step
    monkeypatch.setattr(thinning, "LONGEST", np.inf)
    base = np.zeros(CLUSTERS)
    method = thinned(base)
    log_alpha = base + move * np.sin(np.arange(CLUSTERS))
    proposed = method.propose(log_alpha, plan(log_alpha).mean(0))
    np.testing.assert_allclose(proposed, whole_step(log_alpha), rtol=2e-3, atol=2e-3)


def test_no_scaling_moves_far_in_one_step(monkeypatch):
    monkeypatch.setattr(thinning, "STEPS", 2)
    monkeypatch.setattr(thinning, "LONGEST", 0.5)
    moved = thinned(np.zeros(CLUSTERS)).propose(np.zeros(CLUSTERS), plan(np.zeros(CLUSTERS)).mean(0))
    assert np.abs(moved).max() == 0.5


def test_one_proposal_solves_a_thin_plan():
    log_alpha = thinned(np.zeros(CLUSTERS)).propose(np.zeros(CLUSTERS), plan(np.zeros(CLUSTERS)).mean(0))
    assert np.abs(plan(log_alpha).mean(0) - WEIGHTS).sum() < 1e-5


def test_steps_that_only_do_harm_are_not_taken(monkeypatch):
    monkeypatch.setattr(Thinned, "_step", lambda self, *_: 9 * np.sin(np.arange(CLUSTERS)))
    start = 0.1 * np.cos(np.arange(CLUSTERS))
    proposed = thinned(np.zeros(CLUSTERS)).propose(start, plan(start).mean(0))
    np.testing.assert_array_equal(proposed, start)


def test_it_is_outdated_when_its_promise_is_broken_though_it_helped():
    start = np.zeros(CLUSTERS)
    method, error = thinned(start), np.abs(plan(start).mean(0) - WEIGHTS).sum()
    assert not method.is_outdated(error)  # nothing was promised yet
    method.propose(start, plan(start).mean(0))
    assert method.is_outdated(0.4 * error) and method.is_outdated(0.02 * error)
    assert not method.is_outdated(0.01 * error)  # about as promised
    assert not method.is_outdated(0.6 * error)  # that is lost


def test_without_large_entries_a_step_is_sinkhorns(monkeypatch):
    monkeypatch.setattr(thinning, "STEPS", 2)
    masses = plan(np.zeros(CLUSTERS)).mean(0)
    proposed = thinned(np.zeros(CLUSTERS), threshold=1.0).propose(np.zeros(CLUSTERS), masses)
    expected = np.log(WEIGHTS / masses)
    # but for the damping and the constant that is left open
    moved = proposed - proposed.mean() - (expected - expected.mean())
    assert np.abs(moved).max() < 0.25 * np.abs(expected).max()


def test_steps_reach_the_solution_and_one_that_does_not_help_is_told():
    log_alpha, errors = np.zeros(CLUSTERS), []
    method = thinned(log_alpha)
    for _ in range(9):
        masses = plan(log_alpha).mean(0)
        errors.append(np.abs(masses - WEIGHTS).sum())
        if errors[-1] < 1e-7:
            break
        log_alpha = method.propose(log_alpha, masses)
        assert not method.lost
    assert errors[-1] < 1e-7
    method.propose(log_alpha + 1.0 * np.sin(np.arange(CLUSTERS)), plan(log_alpha + np.sin(np.arange(CLUSTERS))).mean(0))
    assert method.lost


def test_a_plan_that_is_not_thin_is_not_thinned(monkeypatch):
    monkeypatch.setattr(thinning, "THRESHOLDS", ((1e-8, 5), (1e-3, CLUSTERS - 1)))
    flat = np.zeros([ROWS, CLUSTERS], np.float32)
    reader = Reader(RowBlocks(flat), kernel=Kernel())
    reading = reader.read(1.0, np.zeros(CLUSTERS))
    assert reader.thinned(reading, WEIGHTS, 1e-4) is None
    assert reader.num_passes == 2


def test_on_other_devices_the_large_entries_are_the_same(monkeypatch):
    from selabel_tf.labelling import reading as readings

    found = []
    for name in ("CPU", "no such device"):
        monkeypatch.setattr(readings, "HOST", name)
        reader = Reader(RowBlocks([LOG_P[:101], LOG_P[101:]]), kernel=(kernel := Kernel()))
        reader.read(LAMBDA, np.zeros(CLUSTERS))
        found.append(kernel.large_shares(np.zeros(CLUSTERS), 1e-3, CLUSTERS))
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-5)


def heavy_tailed(rows, clusters, seed=0):
    random = np.random.default_rng(seed)
    logits = random.standard_t(3, size=(rows, 31)) @ random.normal(size=(31, clusters)) / 31**0.5
    return (logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))).astype(np.float32)


@pytest.mark.parametrize("lambda_", [10.0, 25.0, 100.0])
def test_a_sample_and_thinning_lead_to_the_same_scalings_with_fewer_readings(lambda_, monkeypatch):
    log_p = heavy_tailed(11003, 293)  # large enough for a sample, and for thinning
    used = []
    monkeypatch.setattr(Thinned, "propose", lambda *a, original=Thinned.propose: used.append(1) or original(*a))
    with_both = solve(log_p, lambda_=lambda_, tolerance=3e-5)
    assert used
    monkeypatch.setattr(sinkhorn, "THIN_ERROR", 0.0)
    monkeypatch.setattr(sinkhorn, "SAMPLE_SHARE", 0.0)
    without = solve(log_p, lambda_=lambda_, tolerance=3e-5)
    assert with_both.converged and without.converged
    assert with_both.num_passes < without.num_passes
    assert with_both.cost == pytest.approx(without.cost, rel=1e-4)
    labels = [np.argmax(lambda_ * log_p + result.log_alpha, axis=1) for result in (with_both, without)]
    assert np.mean(labels[0] == labels[1]) > 0.998
    masses = plan(with_both.log_alpha, log_p, lambda_).mean(0)
    assert np.abs(masses - 1 / 293).sum() == pytest.approx(with_both.marginal_error, abs=2e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("num_bad", [1, 101])  # seldom and surely in the sample
def test_after_a_sample_bad_values_are_still_found(value, num_bad):
    log_p = heavy_tailed(11003, 293)
    log_p[9001 : 9001 + num_bad, 7] = value
    with pytest.raises(ValueError, match="NaN or infinite value in row 9001"):
        solve(log_p)
