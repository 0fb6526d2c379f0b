"""Better prices on candidate lists: fewer rows out of place than the soft plan leaves."""

import numpy as np
import pytest
from scipy.special import log_softmax

from selabel_tf.labelling.candidates import Candidates
from selabel_tf.labelling.scores import RowBlocks
from selabel_tf.labelling.sharpening import sharper_prices
from selabel_tf.labelling.sinkhorn import solve

ROWS, CLUSTERS = 2003, 23
WEIGHTS = np.arange(10, 10 + CLUSTERS) / np.arange(10, 10 + CLUSTERS).sum()


def misplaced(labels):
    return np.abs(np.bincount(labels, minlength=CLUSTERS) - ROWS * WEIGHTS).sum() / 2


def problem(scale):
    """Candidates, and prices as a plan at lambda 25 has them."""
    logits = scale * np.random.default_rng(0).normal(size=[ROWS, CLUSTERS])
    log_p = log_softmax(logits, axis=1).astype(np.float32)
    prices = solve(log_p, cluster_weights=WEIGHTS).log_alpha / 25.0
    return Candidates(RowBlocks(log_p), prices, 16, WEIGHTS), prices


@pytest.mark.parametrize("scale", [0.001, 0.01, 0.1])
def test_an_undecided_network_is_nearly_balanced_at_the_new_prices(scale):
    candidates, prices = problem(scale)
    before = misplaced(candidates.choose(prices))
    prices, labels = sharper_prices(candidates, prices, 25.0, WEIGHTS, misplaced, 0.01 * ROWS)
    assert misplaced(labels) <= min(0.02 * ROWS, before)
    np.testing.assert_array_equal(labels, candidates.choose(prices))


def test_prices_that_cannot_be_improved_come_back():
    candidates, start = problem(1.0)
    prices, labels = sharper_prices(candidates, start, 25.0, WEIGHTS, lambda labels: 7, 0)
    np.testing.assert_array_equal(prices, start)
    np.testing.assert_array_equal(labels, candidates.choose(start))


def test_it_stops_when_few_enough_are_out_of_place():
    candidates, start = problem(0.001)
    counts = []
    sharper_prices(candidates, start, 25.0, WEIGHTS, lambda labels: counts.append(misplaced(labels)) or counts[-1], 700)
    assert counts[-1] <= 700 and min(counts[:-2]) > 700
