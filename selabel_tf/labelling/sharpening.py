"""Prices for hard choices: the solution at larger and larger lambda, among each row's candidates only.

A soft plan (small lambda, or a network that does not know yet) has balanced masses but unbalanced best choices: what
is shared among many clusters goes to one. As lambda grows the masses become the sizes. The candidate lists are N x C
numbers instead of N x K, so a step here costs a small part of a reading of the scores, and it saves moving a large
share of the rows one by one.
"""

import numpy as np

from selabel_tf.labelling.anderson import Anderson

FACTOR = 4.0  # of lambda, from stage to stage
STAGES = 5
STEPS = 12  # of Anderson acceleration in a stage, at most
TOLERANCE = 0.01  # marginal error that ends a stage
SCALE = 16.0  # lambda times the gap from the first to the last candidate, at least: below, nothing is decided


def sharper_prices(candidates, prices, lambda_, weights, misplaced, enough):
    """Prices [K] and labels [N] there, with as few rows out of place as the stages find.

    prices, weights: [K], prices solved at lambda_. misplaced: function of labels. enough: how many may remain.
    """
    best = candidates.choose(prices)
    fewest, best_prices = misplaced(best), prices
    lambda_ = max(FACTOR * lambda_, SCALE / max(candidates.mean_gap(prices), 1e-9))
    for _ in range(STAGES):
        prices = _solve(candidates, prices, lambda_, weights)
        labels = candidates.choose(prices)
        if misplaced(labels) < fewest:
            fewest, best, best_prices = misplaced(labels), labels, prices
        if fewest <= enough:
            break
        lambda_ *= FACTOR
    return best_prices, best


def _solve(candidates, prices, lambda_, weights):
    """The prices of least marginal error that Anderson acceleration meets at this lambda."""
    method, log_alpha, least = Anderson(weights), lambda_ * prices, np.inf
    for _ in range(STEPS):
        masses = candidates.masses(log_alpha / lambda_, lambda_)
        error = np.abs(masses - weights).sum()
        if error < least:
            least, prices = error, log_alpha / lambda_
        if error < TOLERANCE:
            break
        log_alpha = method.propose(log_alpha, masses)
    return prices
