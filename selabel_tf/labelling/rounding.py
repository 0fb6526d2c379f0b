"""From log-scalings to one label per example: the best choice, or exactly balanced.

    hard       l_i = argmax_k(lambda log p_ik + log_alpha_k): the largest entry of row i of the plan
    balanced   maximise sum_i log p(i, l_i)  subject to  #{i: l_i = k} = floor or ceil of N w_k

The balanced labels do not depend on lambda or log_alpha: f = log_alpha / lambda only tells where to start. They are
found exactly. Every row keeps its `CANDIDATES` best clusters at the prices f (one reading of the scores), the sizes are
repaired on these lists (`exchange`), and one more reading checks the new prices against all N x K scores: where no
row has a better choice the labels are optimal by duality, otherwise such rows get new lists and the repair goes on.
"""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from selabel_tf.labelling import sinkhorn
from selabel_tf.labelling.exchange import Exchange
from selabel_tf.labelling.scores import (
    RowBlocks,
    checked_lambda,
    checked_log_alpha,
    first_bad_row,
    refuse_bad_rows,
    wanted_weights,
)

CANDIDATES = 16
ROUNDS = 20  # of repair and check; two or three are the rule
FEW = 500  # rows out of place that are soon repaired one by one, whatever
ROUGH = 0.02  # share of rows out of place above which better prices are cheaper than repairing
SHARPER = 8.0  # factor of lambda to find better prices at


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
    prices, choices = _near_prices(blocks, prices, lambda_, weights)
    limits = _size_limits(blocks.num_rows, weights)
    width, balanced = CANDIDATES, None
    for _ in range(ROUNDS):
        exchange = Exchange(choices.labels, prices, choices.candidates, choices.values, *limits)
        if exchange.balance():
            balanced = exchange.labels.astype(np.int32)
        else:
            width *= 4  # with all K clusters as candidates there is always a way
        prices = exchange.prices
        choices = _choose(blocks, prices, width, exchange.labels)
        if balanced is not None and np.array_equal(choices.labels, balanced):
            break
    return balanced


@dataclass(frozen=True)
class _Choices:
    """labels: int64 [N]. candidates: int32 [N, C], label included; values: float32 [N, C], their log p."""

    labels: np.ndarray
    candidates: np.ndarray
    values: np.ndarray

    def misplaced(self, lower, upper):
        """How many rows must leave their cluster before the sizes can hold."""
        sizes = np.bincount(self.labels, minlength=len(lower))
        return max(np.maximum(sizes - upper, 0).sum(), np.maximum(lower - sizes, 0).sum())


def _choose(blocks, prices, width, labels=None):
    """One reading: each row's label (kept where nothing is better), and its best clusters at these prices."""
    prices, parts, row = tf.constant(prices), [], 0
    for block in blocks:
        own = np.full(len(block), -1) if labels is None else labels[row : row + len(block)]
        parts.append(_choose_block(block, prices, width, row, tf.constant(own, tf.int64)))
        row += len(block)
    *columns, bad_rows = zip(*parts, strict=True)
    refuse_bad_rows(bad_rows, [len(part) for part in columns[0]])
    return _Choices(*(np.concatenate(column) for column in columns))


def _near_prices(blocks, prices, lambda_, weights):
    """Prices at which few rows are out of place, and the choices there.

    A soft plan (small lambda, or a network that does not know yet) has balanced masses but unbalanced best choices.
    Solving on at larger lambda takes few readings and saves repairing a large share of the rows one by one.
    """
    choices = _choose(blocks, prices, CANDIDATES)
    limits = _size_limits(blocks.num_rows, weights)
    for _ in range(3):
        misplaced = choices.misplaced(*limits)
        if misplaced <= max(ROUGH * blocks.num_rows, FEW):
            break
        lambda_ = min(SHARPER * lambda_, 1e6)
        sharper = sinkhorn.solve(
            blocks,
            lambda_=lambda_,
            cluster_weights=weights,
            log_alpha=prices * lambda_,
            tolerance=ROUGH,
            max_passes=50,
        )
        sharper_prices = sharper.log_alpha / lambda_
        sharper_choices = _choose(blocks, sharper_prices, CANDIDATES)
        if sharper_choices.misplaced(*limits) < misplaced:
            prices, choices = sharper_prices, sharper_choices
    return prices, choices


def _size_limits(num_rows, weights):
    """Floor and ceil of N * weight, int64 [K]; a product within rounding of a whole number is that number."""
    sizes = num_rows * weights
    return np.floor(sizes + 1e-7).astype(np.int64), np.ceil(sizes - 1e-7).astype(np.int64)


_BLOCK = tf.TensorSpec([None, None], tf.float32)
_VECTOR = tf.TensorSpec([None], tf.float64)


@tf.function(input_signature=[_BLOCK, tf.TensorSpec([], tf.float64), _VECTOR])
def _best_choice(log_p, lambda_, log_alpha):
    scores = lambda_ * tf.cast(log_p, tf.float64) + log_alpha
    return tf.argmax(scores, axis=1, output_type=tf.int32), first_bad_row(log_p)


@tf.function(
    input_signature=[
        _BLOCK,
        _VECTOR,
        tf.TensorSpec([], tf.int32),
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([None], tf.int64),
    ]
)
def _choose_block(log_p, prices, width, first_row, own):
    """Labels [n], candidates [n, width + 2] and their log p. own: the labels to keep if they are best, or -1."""
    scores = tf.cast(log_p, tf.float64) + prices  # [n, K]
    num_rows, num_clusters = tf.shape(scores)[0], tf.shape(scores)[1]
    top, best = tf.math.top_k(scores, tf.minimum(width, num_clusters))
    slack = 1e-9 * (1 + tf.abs(top[:, :1]))  # prices are sums of many numbers: equal only to rounding
    # Among equals, row i takes the first cluster from i mod K on: uniform predictions spread over all clusters.
    row = first_row + tf.range(num_rows, dtype=tf.int64)  # [n]
    turn = tf.cast(row % tf.cast(num_clusters, tf.int64), tf.int32)
    order = (tf.range(num_clusters) - turn[:, None]) % num_clusters  # [n, K]
    chosen = tf.argmin(tf.where(scores >= top[:, :1] - slack, order, num_clusters), axis=1)  # [n]
    own_scores = tf.gather(scores, tf.maximum(own, 0), batch_dims=1)
    labels = tf.where((own >= 0) & (own_scores >= top[:, 0] - slack[:, 0]), own, chosen)
    # The last column is any cluster, another one for each row: it ties the exchange graph together.
    candidates = tf.concat([tf.cast(labels, tf.int32)[:, None], best, turn[:, None]], axis=1)
    return labels, candidates, tf.gather(log_p, candidates, batch_dims=1), first_bad_row(log_p)
