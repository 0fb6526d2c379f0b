"""Lists of candidates against sorting all scores in NumPy."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from selabel_tf.labelling.candidates import Candidates
from selabel_tf.labelling.scores import RowBlocks

ROWS, CLUSTERS, WIDTH = 211, 23, 5
UNIFORM = np.full(CLUSTERS, 1 / CLUSTERS)


def problem(seed=0):
    generator = np.random.default_rng(seed)
    log_p = log_softmax(generator.normal(size=[ROWS, CLUSTERS]), axis=1).astype(np.float32)
    return log_p, generator.normal(size=CLUSTERS)


def read(log_p, prices, width=WIDTH, weights=UNIFORM):
    blocks = RowBlocks(log_p)
    return blocks, Candidates(blocks, prices, width, weights)


def test_a_row_keeps_its_best_clusters_at_the_prices():
    log_p, prices = problem()
    _, lists = read(log_p, prices)
    assert lists.clusters.shape == lists.values.shape == (ROWS, WIDTH + 2)
    np.testing.assert_array_equal(lists.clusters[:, :WIDTH], np.argsort(-(log_p + prices), axis=1)[:, :WIDTH])
    here = np.isfinite(lists.values)
    np.testing.assert_array_equal(lists.values[here], np.take_along_axis(log_p, lists.clusters, axis=1)[here])


def test_no_cluster_counts_twice_in_a_list():
    _, lists = read(*problem(), width=CLUSTERS)
    assert np.isfinite(lists.values[:, :CLUSTERS]).all()
    assert (lists.values[:, CLUSTERS:] == -np.inf).all()


def test_row_blocks_give_the_lists_of_one_matrix():
    log_p, prices = problem()
    _, whole = read(log_p, prices)
    _, parts = read([log_p[:101], log_p[101:103], log_p[103:]], prices)
    np.testing.assert_array_equal(parts.clusters, whole.clusters)
    np.testing.assert_array_equal(parts.values, whole.values)


def test_the_choice_is_the_best_of_all_clusters():
    log_p, prices = problem()
    _, lists = read(log_p, prices)
    np.testing.assert_array_equal(lists.choose(prices), np.argmax(log_p + prices, axis=1))


@pytest.mark.parametrize("weights", [UNIFORM, np.arange(1, CLUSTERS + 1) / np.arange(1, CLUSTERS + 1).sum()])
def test_rows_without_a_preference_spread_by_the_weights(weights):
    rows = 2003
    _, lists = read(np.full([rows, CLUSTERS], -3, np.float32), np.zeros(CLUSTERS), weights=weights)
    sizes = np.bincount(lists.choose(np.zeros(CLUSTERS)), minlength=CLUSTERS)
    np.testing.assert_allclose(sizes, rows * weights, atol=4)


def test_masses_among_all_clusters_are_those_of_the_plan():
    log_p, prices = problem()
    _, lists = read(log_p, prices, width=CLUSTERS)
    plan = softmax(7.0 * (log_p.astype(np.float64) + prices), axis=1)
    np.testing.assert_allclose(lists.masses(prices, 7.0), plan.mean(axis=0), rtol=1e-9)


def test_the_mean_gap_is_between_the_first_and_the_last_candidate():
    log_p, prices = problem()
    _, lists = read(log_p, prices)
    ordered = -np.sort(-(log_p + prices), axis=1)
    assert lists.mean_gap(prices) == pytest.approx(np.mean(ordered[:, 0] - ordered[:, WIDTH - 1]), rel=1e-6)


def test_rows_with_a_better_choice_at_new_prices_get_it_and_a_new_list():
    log_p, prices = problem()
    blocks, lists = read(log_p, prices)
    labels, before = lists.choose(prices), lists.clusters.copy()
    old, new_prices = labels.copy(), np.random.default_rng(5).normal(size=CLUSTERS)
    best = np.argmax(log_p + new_prices, axis=1)
    assert 0 < np.sum(best != old) < ROWS
    assert lists.renew(blocks, new_prices, labels) == np.sum(best != old)
    np.testing.assert_array_equal(labels, best)
    changed = best != old
    np.testing.assert_array_equal(lists.clusters[~changed], before[~changed])
    expected = np.argsort(-(log_p + new_prices), axis=1)[changed, :WIDTH]
    np.testing.assert_array_equal(lists.clusters[changed, :WIDTH], expected)
    kept = (lists.clusters == old[:, None]) & np.isfinite(lists.values)
    np.testing.assert_array_equal(kept.sum(axis=1), 1)  # the label so far stays a candidate, once
    assert lists.renew(blocks, new_prices, labels) == 0
