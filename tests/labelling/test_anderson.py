"""Anderson acceleration against the plain update it accelerates."""

import numpy as np

from selabel_tf.labelling.anderson import Anderson


def masses(scores, log_alpha):
    plan = np.exp(scores + log_alpha - (scores + log_alpha).max(1, keepdims=True))
    return (plan / plan.sum(1, keepdims=True)).mean(0)


def test_it_needs_far_fewer_updates_than_the_plain_iteration():
    scores, weights = 12 * np.random.default_rng(0).normal(size=(499, 23)), np.full(23, 1 / 23)

    def updates(propose):
        log_alpha, number = np.zeros(23), 0
        while np.abs(masses(scores, log_alpha) - weights).sum() > 1e-6 and number < 2000:
            log_alpha, number = propose(log_alpha, masses(scores, log_alpha)), number + 1
        return number

    plain = updates(lambda a, m: a + np.log(weights) - np.log(m))
    assert updates(Anderson(weights).propose) < plain / 3


def test_an_error_that_doubles_sends_it_back_to_the_plain_update_of_the_best_point():
    weights = np.array([0.5, 0.5])
    anderson = Anderson(weights)
    anderson.propose(np.array([1.0, -1.0]), np.array([0.4, 0.6]))
    after = anderson.propose(np.array([9.0, -9.0]), np.array([0.99, 0.01]))
    np.testing.assert_allclose(after, np.array([1.0, -1.0]) + np.log(weights / [0.4, 0.6]))


def test_an_underflowed_mass_moves_its_scaling_by_a_finite_step():
    step = Anderson(np.array([0.5, 0.5])).propose(np.zeros(2), np.array([0.0, 1.0]))
    assert np.isfinite(step).all() and 50 < step[0] < 100
