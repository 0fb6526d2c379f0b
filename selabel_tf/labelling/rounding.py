"""From log-scalings to labels: one per example, the best choice or exactly balanced; or several, with their shares.

    hard       l_i = argmax_k(lambda log p_ik + log_alpha_k): the largest entry of row i of the plan
    soft       the largest entries of row i of the plan, brought to sum 1
    balanced   maximise sum_i log p(i, l_i)  subject to  #{i: l_i = k} = floor or ceil of N w_k

The balanced labels do not depend on lambda or log_alpha: f = log_alpha / lambda only tells where to start. They are
found exactly. Every row keeps its best clusters at the prices f (`candidates`, one reading of the scores), the sizes
are repaired on these lists (`exchange`), and one more reading checks the new prices against all N x K scores: where no
row has a better choice the labels are optimal by duality, otherwise such rows get new lists and the repair goes on.
Prices that leave many rows out of place are first improved on the lists (`sharpening`). Beside the scores this takes
150 bytes per row and 8 K^2, and as a rule no more than two readings.
"""

from functools import partial

import numpy as np
import tensorflow as tf

from selabel_tf.labelling.candidates import Candidates
from selabel_tf.labelling.exchange import Exchange
from selabel_tf.labelling.scores import (
    RowBlocks,
    checked_lambda,
    checked_log_alpha,
    first_bad_row,
    refuse_bad_rows,
    wanted_weights,
)
from selabel_tf.labelling.sharpening import sharper_prices

WIDTH = 16  # candidates of each row
ROUNDS = 20  # of repair and check; one or two are the rule
FEW = 500  # rows out of place that are soon repaired, whatever
ROUGH = 0.02  # share of rows out of place above which better prices are cheaper than repairing
SHARPENINGS = 3  # attempts at better prices


def hard_labels(log_p, log_alpha, *, lambda_=25.0) -> np.ndarray:
    """int32 [N], argmax_k(lambda log p_ik + log_alpha_k); ties go to the lowest cluster.

    log_p: [N, K] or a re-iterable of row blocks. log_alpha: [K].
    """
    lambda_ = checked_lambda(lambda_)
    blocks = RowBlocks(log_p)
    log_alpha = tf.constant(checked_log_alpha(log_alpha, blocks.num_clusters))
    labels, bad_rows = zip(*(_best_choice(block, lambda_, log_alpha) for block in blocks), strict=True)
    refuse_bad_rows(bad_rows, [len(part) for part in labels])
    return np.concatenate(labels)


def soft_labels(log_p, log_alpha, count, *, lambda_=25.0) -> tuple[np.ndarray, np.ndarray]:
    """Clusters int32 [N, count] of each row's largest entries in the plan, and their shares float32 [N, count], sum 1.

    The plan's rows are softmax_k(lambda log p_ik + log_alpha_k). The first cluster is that of `hard_labels`.
    """
    lambda_ = checked_lambda(lambda_)
    blocks = RowBlocks(log_p)
    if not 1 <= count <= blocks.num_clusters:
        raise ValueError(f"count={count}: there are 1 to {blocks.num_clusters} clusters to spread a label over.")
    log_alpha = tf.constant(checked_log_alpha(log_alpha, blocks.num_clusters))
    parts = [_best_choices(block, lambda_, log_alpha, count) for block in blocks]
    clusters, shares, bad_rows = zip(*parts, strict=True)
    refuse_bad_rows(bad_rows, [len(part) for part in clusters])
    return np.concatenate(clusters), np.concatenate(shares)


def balanced_labels(log_p, log_alpha, *, lambda_=25.0, cluster_weights=None) -> np.ndarray:
    """int32 [N], cluster sizes exactly floor or ceil of N * weight, at the largest possible sum of log p.

    log_p: [N, K] or a re-iterable of row blocks. log_alpha: [K] as solved for the same lambda_ and
    cluster_weights; poor ones cost time, not quality. Optimal unless `ROUNDS` rounds of repair and check were not
    enough: then close to it, and the sizes hold all the same.
    """
    lambda_ = checked_lambda(lambda_)
    blocks = RowBlocks(log_p)
    weights = wanted_weights(cluster_weights, blocks.num_clusters)
    prices = checked_log_alpha(log_alpha, blocks.num_clusters) / lambda_
    candidates = Candidates(blocks, prices, WIDTH, weights)
    limits = _size_limits(blocks.num_rows, weights)
    misplaced = partial(_misplaced, lower=limits[0], upper=limits[1])
    few = max(FEW, ROUGH * blocks.num_rows)
    labels, balanced, width, sharpenings = candidates.choose(prices), None, WIDTH, SHARPENINGS
    for _ in range(ROUNDS):
        if sharpenings and misplaced(labels) > few:
            sharpenings -= 1
            prices, labels = sharper_prices(candidates, prices, lambda_, weights, misplaced, few / 4)
            if misplaced(labels) > few:  # the lists are of far other prices
                candidates.renew(blocks, prices, labels)
                continue
        exchange = Exchange(labels, prices, candidates.clusters, candidates.values, *limits)
        done, prices, labels = exchange.balance(), exchange.prices, exchange.labels
        if done:
            balanced = labels.astype(np.int32)
            if not candidates.renew(blocks, prices, labels):
                break
        else:
            width *= 4  # with all K clusters as candidates there is always a way
            candidates = Candidates(blocks, prices, width, weights)
            labels = candidates.choose(prices)
    return balanced


def _misplaced(labels, lower, upper):
    """How many rows must leave their cluster before the sizes can hold."""
    sizes = np.bincount(labels, minlength=len(lower))
    return max(np.maximum(sizes - upper, 0).sum(), np.maximum(lower - sizes, 0).sum())


def _size_limits(num_rows, weights):
    """Floor and ceil of N * weight, int64 [K]; a product within rounding of a whole number is that number."""
    sizes = num_rows * weights
    return np.floor(sizes + 1e-7).astype(np.int64), np.ceil(sizes - 1e-7).astype(np.int64)


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([], tf.float64),
        tf.TensorSpec([None], tf.float64),
    ]
)
def _best_choice(log_p, lambda_, log_alpha):
    scores = lambda_ * tf.cast(log_p, tf.float64) + log_alpha
    return tf.argmax(scores, axis=1, output_type=tf.int32), first_bad_row(log_p)


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([], tf.float64),
        tf.TensorSpec([None], tf.float64),
        tf.TensorSpec([], tf.int32),
    ]
)
def _best_choices(log_p, lambda_, log_alpha, count):
    scores, clusters = tf.math.top_k(lambda_ * tf.cast(log_p, tf.float64) + log_alpha, count)
    return clusters, tf.cast(tf.nn.softmax(scores), tf.float32), first_bad_row(log_p)
