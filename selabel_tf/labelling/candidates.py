"""The few clusters each row may want: its best ones at given prices, from one reading of the scores.

At prices f [K] row i wants the cluster with the largest log p_ik + f_k. Near these prices it wants one of its `width`
best, so N short lists stand for the N x K scores while sizes are repaired. Two more clusters, spread over all by the
wanted weights and other ones for each row, tie the lists together: there is a way from any cluster to any other, and
where predictions are all alike the rows start spread over all clusters. Memory: (width + 2) * 8 bytes per row.
"""

import numpy as np
import tensorflow as tf

from selabel_tf.labelling.scores import first_bad_row, refuse_bad_rows

SAMPLE = 1 << 15  # rows that are enough to see how far scores spread
ROUNDING = 1e-9  # prices are sums of many numbers: scores are equal only to this


class Candidates:
    """clusters: int32 [N, C], none twice in a row but where values: float32 [N, C], their log p, is -inf."""

    def __init__(self, blocks, prices, width, weights):
        """One reading of all blocks at prices [K]; weights [K] spread the two additional clusters."""
        width = min(width, blocks.num_clusters)
        shares = np.cumsum(weights)[:-1]
        f, parts, row = tf.constant(prices, tf.float32), [], 0
        for block in blocks:
            rows = np.arange(row, row + len(block))
            parts.append(_best_clusters(block, f, width, _spread(rows, shares)))
            row += len(block)
        clusters, values, bad_rows = zip(*parts, strict=True)
        refuse_bad_rows(bad_rows, [len(part) for part in values])
        self.clusters, self.values = np.concatenate(clusters), np.concatenate(values)

    def scores(self, prices, rows=slice(None)):
        """log p + price, float64 [n, C]."""
        return self.values[rows] + prices[self.clusters[rows]]

    def choose(self, prices):
        """int64 [N]: every row's best cluster; among equals the first from one of its two additional ones on."""
        return np.concatenate([self._choose(prices, rows) for rows in _slices(len(self.clusters))])

    def _choose(self, prices, rows):
        scores, clusters = self.scores(prices, rows), self.clusters[rows].astype(np.int64)
        equal = _equal(scores, scores.max(axis=1, keepdims=True))
        order = np.where(equal, (clusters - clusters[:, -1:]) % len(prices), len(prices))
        return np.take_along_axis(clusters, order.argmin(axis=1)[:, None], axis=1)[:, 0]

    def mean_gap(self, prices):
        """How far a row's scores spread, from its best candidate to its worst, in the mean over some of the rows."""
        scores = self.scores(prices, slice(None, None, -(-len(self.clusters) // SAMPLE)))[:, :-2]
        return np.mean(scores.max(axis=1) - np.min(scores, axis=1, where=np.isfinite(scores), initial=np.inf))

    def masses(self, prices, lambda_):
        """float64 [K], sum 1: column means of softmax(lambda * scores) over each row's candidates."""
        masses = np.zeros(len(prices))
        for rows in _slices(len(self.clusters)):
            scores = lambda_ * self.scores(prices, rows)
            plan = np.exp(scores - scores.max(axis=1, keepdims=True))
            plan /= plan.sum(axis=1, keepdims=True)
            masses += np.bincount(self.clusters[rows].ravel(), plan.ravel(), len(prices))
        return masses / masses.sum()

    def renew(self, blocks, prices, labels):
        """One reading: where a label is no longer the row's best, a new list and the best as label (in place).

        Returns how many such rows there are. The reading is in float32: what it misses, float32 cannot tell.
        """
        width = self.clusters.shape[1] - 2
        f, found, row = tf.constant(prices, tf.float32), [], 0
        for block in blocks:
            here = slice(row, row + len(block))
            more = np.stack([labels[here], self.clusters[here, -1]], axis=1).astype(np.int32)
            rows, clusters, values = _better_clusters(block, f, width, more)
            rows = rows.numpy() + row
            self.clusters[rows], self.values[rows] = clusters, values
            found.append(rows)
            row += len(block)
        found = np.concatenate(found)
        scores = self.scores(prices, found)
        own = np.max(np.where(self.clusters[found] == labels[found, None], scores, -np.inf), axis=1)
        found = found[~_equal(own, scores.max(axis=1))]
        labels[found] = self._choose(prices, found)
        return len(found)


def _equal(scores, best):
    return scores >= best - ROUNDING * (1 + np.abs(best))


def _slices(num_rows, step=1 << 15):
    """Row slices small enough for the cache."""
    return [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]


def _spread(rows, shares):
    """int32 [n, 2], two clusters for each row: pairs fill the square evenly (Kronecker sequence), by shares."""
    positions = rows[:, None] * np.array([np.sqrt(2), (np.sqrt(5) - 1) / 2]) % 1
    return np.searchsorted(shares, positions, side="right").astype(np.int32)


_SCORES = tf.TensorSpec([None, None], tf.float32)
_PRICES = tf.TensorSpec([None], tf.float32)
_WIDTH = tf.TensorSpec([], tf.int32)
_MORE = tf.TensorSpec([None, 2], tf.int32)


def _with_values(log_p, best, more):
    """Best clusters [n, width] and more [n, 2] in one list, and their log p: -inf for what is there already."""
    clusters = tf.concat([best, more], axis=1)
    values = tf.gather(log_p, clusters, batch_dims=1)
    position = tf.range(tf.shape(clusters)[1])
    again = tf.reduce_any((clusters[:, :, None] == clusters[:, None]) & (position[:, None] > position), axis=2)
    return clusters, tf.where(again, -np.inf, values)


@tf.function(input_signature=[_SCORES, _PRICES, _WIDTH, _MORE])
def _best_clusters(log_p, prices, width, more):
    best = tf.math.top_k(log_p + prices, width).indices
    return *_with_values(log_p, best, more), first_bad_row(log_p)


@tf.function(input_signature=[_SCORES, _PRICES, _WIDTH, _MORE])
def _better_clusters(log_p, prices, width, more):
    """Rows [m] that have a better cluster than the first of `more`, and what `_best_clusters` says of them."""
    scores = log_p + prices
    rows = tf.where(tf.reduce_max(scores, axis=1) > tf.gather(scores, more[:, 0], batch_dims=1))[:, 0]
    best = tf.math.top_k(tf.gather(scores, rows), width).indices
    return rows, *_with_values(tf.gather(log_p, rows), best, tf.gather(more, rows))
