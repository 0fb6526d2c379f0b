"""Both roundings, the balanced one against the exact assignment by scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.special import log_softmax

from selabel_tf.labelling import candidates, rounding
from selabel_tf.labelling.rounding import balanced_labels, hard_labels
from selabel_tf.labelling.sharpening import sharper_prices
from selabel_tf.labelling.sinkhorn import solve


def network(rows, clusters, *, scale=1.0, seed=0):
    logits = scale * np.random.default_rng(seed).normal(size=(rows, clusters))
    return log_softmax(logits, axis=1).astype(np.float32)


def total(log_p, labels):
    return log_p[np.arange(len(log_p)), labels].astype(np.float64).sum()


def exact_total(log_p, weights):
    """The best sum of log p with sizes floor or ceil of N * weight: slots that must be filled carry a prize."""
    sizes = len(log_p) * weights
    lower, upper = np.floor(sizes + 1e-7).astype(int), np.ceil(sizes - 1e-7).astype(int)
    slots = np.concatenate([np.repeat(np.arange(len(weights)), lower), np.flatnonzero(upper > lower)])
    prize = np.where(np.arange(len(slots)) < lower.sum(), 1e6, 0.0)
    _, chosen = linear_sum_assignment(log_p[:, slots].astype(np.float64) + prize, maximize=True)
    return total(log_p, slots[chosen])


def check(log_p, weights=None, log_alpha=None):
    num_clusters = log_p.shape[1]
    share = np.full(num_clusters, 1 / num_clusters) if weights is None else weights / weights.sum()
    if log_alpha is None:
        log_alpha = solve(log_p, cluster_weights=weights, tolerance=1e-3, max_passes=100).log_alpha
    labels = balanced_labels(log_p, log_alpha, cluster_weights=weights)
    assert labels.dtype == np.int32 and labels.shape == (len(log_p),)
    sizes = np.bincount(labels, minlength=num_clusters)
    assert (np.abs(sizes - len(log_p) * share) < 1 - 1e-7).all()
    best = exact_total(log_p, share)
    assert total(log_p, labels) == pytest.approx(best, rel=1e-7, abs=1e-5)


PROBLEMS = {
    "mild": network(307, 13),
    "confident": network(307, 13, scale=6.0),
    "more clusters than candidates": network(307, 41, scale=6.0),
    "two rows a cluster": network(211, 101, scale=2.0),
    "as many rows as clusters": network(53, 53, scale=4.0),
    "uniform": np.full([101, 23], -3.0, np.float32),
    "ties": np.round(network(211, 23, scale=2.0)),
    "duplicated rows": np.repeat(network(11, 23, scale=3.0), 13, axis=0),
    "one unwanted cluster": np.where(np.arange(13) == 5, np.float32(-1000), network(211, 13)),
    "all want the same": network(211, 13) - np.where(np.arange(13) == 5, 0, np.float32(50)),
    "one cluster": network(7, 1),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["uniform weights", "own weights"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_balanced_labels_cost_what_the_exact_assignment_costs(name, weighted):
    log_p = PROBLEMS[name]
    check(log_p, np.random.default_rng(3).uniform(0.2, 1, log_p.shape[1]) if weighted else None)


def test_poor_scalings_cost_time_but_not_quality():
    log_p = network(307, 41, scale=6.0)
    check(log_p, log_alpha=np.zeros(41))
    check(log_p, log_alpha=300 * np.random.default_rng(0).normal(size=41))


def test_a_soft_plan_far_from_balanced_is_sharpened_first(monkeypatch):
    log_p = network(1009, 23, scale=0.01)
    log_alpha = solve(log_p).log_alpha
    left = []

    def spy(*arguments):
        prices, labels = sharper_prices(*arguments)
        left.append(arguments[-2](labels))
        return prices, labels

    monkeypatch.setattr(rounding, "FEW", 5)
    monkeypatch.setattr(rounding, "sharper_prices", spy)
    check(log_p, log_alpha=log_alpha)
    assert left and left[-1] <= 0.02 * 1009


def test_a_confident_network_of_some_size_is_labelled_exactly():
    check(network(1994, 97, scale=6.0))


class CountedBlocks:
    def __init__(self, log_p):
        self.log_p, self.readings = log_p, 0

    def __iter__(self):
        yield self.log_p[:1009]
        yield self.log_p[1009:]
        self.readings += 1


def test_good_scalings_need_few_readings_of_the_scores():
    log_p = network(2003, 97, scale=3.0)
    blocks = CountedBlocks(log_p)
    balanced_labels(blocks, solve(log_p).log_alpha)
    assert blocks.readings <= 3


def test_sizes_hold_when_the_rounds_run_out(monkeypatch):
    monkeypatch.setattr(rounding, "WIDTH", 3)
    monkeypatch.setattr(rounding, "ROUNDS", 1)
    labels = balanced_labels(network(307, 41, scale=6.0), np.zeros(41))
    sizes = np.bincount(labels, minlength=41)
    assert sizes.min() == 7 and sizes.max() == 8


def test_the_same_call_gives_the_same_labels():
    log_p = np.round(network(307, 41, scale=2.0))
    log_alpha = solve(log_p).log_alpha
    np.testing.assert_array_equal(balanced_labels(log_p, log_alpha), balanced_labels(log_p.copy(), log_alpha))


def test_short_lists_of_candidates_are_renewed_until_nothing_is_better(monkeypatch):
    monkeypatch.setattr(rounding, "WIDTH", 2)
    check(network(101, 23, scale=6.0), log_alpha=np.zeros(23))


def test_lists_that_leave_no_way_are_made_longer(monkeypatch):
    monkeypatch.setattr(rounding, "WIDTH", 1)
    monkeypatch.setattr(candidates, "_spread", lambda rows, shares: np.zeros([len(rows), 2], np.int32))
    log_p = np.where(np.arange(2) == np.arange(10)[:, None] % 2, 0.0, -3.0).astype(np.float32)
    check(log_p, weights=np.array([0.2, 0.8]), log_alpha=np.zeros(2))  # no list of cluster 0 has cluster 1


@settings(derandomize=True, deadline=None, database=None, max_examples=40)
@given(
    st.integers(1, 23),
    st.integers(0, 40),
    st.sampled_from([0.0, 0.1, 1.0, 6.0, 60.0]),
    st.booleans(),
    st.integers(0, 3),
)
def test_balanced_labels_are_optimal_for_any_scores(clusters, more, scale, rounded, seed):
    log_p = network(clusters + more, clusters, scale=scale, seed=seed)
    check(np.round(log_p) if rounded else log_p)


def test_hard_labels_are_the_largest_entry_of_each_row_of_the_plan():
    log_p, log_alpha = network(211, 13), np.random.default_rng(1).normal(size=13)
    labels = hard_labels(log_p, log_alpha, lambda_=10.0)
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels, np.argmax(10 * log_p.astype(np.float64) + log_alpha, axis=1))


def test_both_roundings_take_row_blocks():
    log_p = network(211, 13)
    log_alpha, blocks = solve(log_p).log_alpha, [log_p[:101], log_p[101:103], log_p[103:]]
    np.testing.assert_array_equal(hard_labels(blocks, log_alpha), hard_labels(log_p, log_alpha))
    labels = balanced_labels(blocks, log_alpha)
    np.testing.assert_array_equal(labels, balanced_labels(log_p, log_alpha))


@pytest.mark.parametrize("label", [hard_labels, balanced_labels])
def test_bad_arguments_are_refused(label):
    log_p = network(7, 3)
    with pytest.raises(ValueError, match=r"expected \(3,\)"):
        label(log_p, np.zeros(5))
    with pytest.raises(ValueError, match="NaN or infinite"):
        label(log_p, np.full(3, np.nan))
    with pytest.raises(ValueError, match="lambda_=0"):
        label(log_p, np.zeros(3), lambda_=0)


@pytest.mark.parametrize("label", [hard_labels, balanced_labels])
def test_values_that_are_not_finite_are_refused_with_their_row(label):
    log_p = network(211, 13)
    log_p[113, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite value in row 113"):
        label([log_p[:101], log_p[101:]], np.zeros(13))


def test_bad_weights_are_refused():
    with pytest.raises(ValueError, match="must be positive"):
        balanced_labels(network(7, 3), np.zeros(3), cluster_weights=[1, -1, 1])
