"""Newton's steps on the K log-scalings."""

import numpy as np

from selabel_tf.labelling.newton import Newton


def measure(scores, log_alpha):
    plan = np.exp(scores + log_alpha - (scores + log_alpha).max(1, keepdims=True))
    plan /= plan.sum(1, keepdims=True)
    return plan.mean(0), plan.T @ plan / len(plan)


def test_it_converges_quadratically_near_the_solution():
    scores, weights = np.random.default_rng(0).normal(size=(499, 23)), np.full(23, 1 / 23)
    newton, log_alpha, errors = Newton(weights), np.zeros(23), []
    for _ in range(6):
        masses, gram = measure(scores, log_alpha)
        errors.append(np.abs(masses - weights).sum())
        log_alpha = newton.propose(log_alpha, masses, gram)
    assert errors[-1] < 1e-12


def test_a_step_too_far_is_shortened_and_then_taken_back():
    weights = np.array([0.5, 0.5])
    newton, start = Newton(weights), np.zeros(2)
    gram = np.array([[0.3, 0.1], [0.1, 0.5]])
    full = newton.propose(start, np.array([0.4, 0.6]), gram)
    shortened = newton.propose(full, np.array([0.99, 0.01]), gram)
    share = (shortened / full)[0]
    assert 0.05 <= share <= 0.5
    again = newton.propose(shortened, np.array([0.99, 0.01]), gram)
    assert 0 < again[0] < full[0]  # from the start once more, damped more


def test_no_undecided_row_at_all_still_gives_a_finite_step_uphill():
    masses, weights = np.array([1.0, 0.0, 0.0]), np.full(3, 1 / 3)
    step = Newton(weights).propose(np.zeros(3), masses, np.diag(masses))
    assert np.isfinite(step).all() and step @ (weights - masses) > 0
