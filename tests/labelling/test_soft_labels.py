import numpy as np
import pytest
import scipy.special

from selabel_tf.labelling.rounding import hard_labels, soft_labels
from selabel_tf.labelling.sinkhorn import solve


def problem(rows=203, clusters=11):
    generator = np.random.default_rng(0)
    log_p = scipy.special.log_softmax(2 * generator.normal(size=(rows, clusters)), axis=1).astype(np.float32)
    return log_p, solve(log_p, lambda_=3.0, tolerance=1e-6).log_alpha


def plan_of(log_p, log_alpha, lambda_):
    return scipy.special.softmax(lambda_ * log_p.astype(np.float64) + log_alpha, axis=1)


def test_all_clusters_of_a_row_are_the_plan_itself():
    log_p, log_alpha = problem()
    clusters, shares = soft_labels(log_p, log_alpha, 11, lambda_=3.0)
    found = np.zeros(log_p.shape)
    np.put_along_axis(found, clusters.astype(np.int64), shares, axis=1)
    np.testing.assert_allclose(found, plan_of(log_p, log_alpha, 3.0), atol=1e-6)
    np.testing.assert_allclose(found.mean(axis=0), 1 / 11, atol=1e-6)  # balanced, as the plan is


def test_the_largest_shares_are_kept_in_order_and_sum_to_one():
    log_p, log_alpha = problem()
    clusters, shares = soft_labels(log_p, log_alpha, 4, lambda_=3.0)
    plan = plan_of(log_p, log_alpha, 3.0)
    expected = -np.sort(-plan, axis=1)[:, :4]
    np.testing.assert_allclose(shares, expected / expected.sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(clusters[:, 0], hard_labels(log_p, log_alpha, lambda_=3.0))
    np.testing.assert_allclose(np.take_along_axis(plan, clusters.astype(np.int64), axis=1), expected, rtol=1e-6)


def test_row_blocks_give_what_one_matrix_gives():
    log_p, log_alpha = problem()
    whole = soft_labels(log_p, log_alpha, 3, lambda_=3.0)
    parts = soft_labels([log_p[:50], log_p[50:]], log_alpha, 3, lambda_=3.0)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("count", [0, 12])
def test_a_label_is_spread_over_clusters_that_there_are(count):
    with pytest.raises(ValueError, match=f"count={count}: there are 1 to 11 clusters"):
        soft_labels(*problem(), count)


def test_bad_scores_are_refused():
    log_p, log_alpha = problem()
    log_p[7, 3] = np.nan
    with pytest.raises(ValueError, match="row 7"):
        soft_labels(log_p, log_alpha, 2)
