"""The nearest rows of a bank by cosine similarity: exact, and in bounded memory.

    s_ij = <q_i, b_j> / (|q_i| |b_j|)        a zero vector has no direction: its similarity to everything is 0

Only directions count. Equal similarities go to the lower bank row, so the answer never depends on chance.

The search compares tiles of queries and bank rows in float32, where TensorFlow places it (on a GPU, when there is one),
and merges the best of each tile into those of the tiles before. The similarities of the k + SPARE rows that remain are
then taken again in float64 from the features as given: they decide, so that the result is that of float64 throughout
unless more than SPARE rows lie within float32's rounding of the k-th.

Selecting the k best of n similarities: cut them into groups of g successive bank rows. The k best lie in the k groups
of the greatest maxima (or in the short rest). So two selections, from n / g and from k * g, stand for one from n, which
tf.math.top_k is slow at on a CPU; g = sqrt(n / k) makes them least.

Besides the features themselves and the result [M, k], memory is a tile of BLOCK_VALUES numbers and its offspring, and
a part of the bank, of BANK_VALUES numbers and at most BANK_ROWS rows.
"""

import itertools
import operator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

BLOCK_VALUES = 2**23  # 32 MB of float32; far smaller tiles leave the matmul without work
BANK_VALUES = 2**25
BANK_ROWS = 2**16
SPARE = 8


class Neighbours(NamedTuple):
    """The k nearest of each query, nearest first: rows of the bank int64 [M, k], similarities float64 [M, k]."""

    rows: np.ndarray
    similarity: np.ndarray


def nearest(bank, queries, k, *, on_queries=None) -> Neighbours:
    """The `k` rows of `bank` [N, D] nearest to each of `queries` [M, D].

    on_queries: called with the number of queries searched for, for progress bars.
    """
    bank, queries = _Directions("bank", bank), _Directions("queries", queries)
    if queries.size != bank.size:
        raise ValueError(
            f"queries have {queries.size} features and the bank has {bank.size}. Extract both with the same network."
        )
    check_k(k, len(bank))
    return _search(bank, queries, k, on_queries)


def nearest_others(features, k, *, on_queries=None) -> Neighbours:
    """The `k` other rows nearest to each row of `features` [N, D]: for sets with no test split."""
    features = _Directions("features", features)
    check_k(k, len(features) - 1)
    rows, similarity = _search(features, features, k + 1, on_queries)
    is_left_out = rows == np.arange(len(features))[:, None]  # [N, k + 1]
    # Not among them: k + 1 others are as near as the row is to itself, and the last of these is one too many.
    is_left_out[~is_left_out.any(axis=1), -1] = True
    return Neighbours(*(a[~is_left_out].reshape(len(features), k) for a in (rows, similarity)))


def check_k(k, num_candidates):
    """Refuses a number of neighbours that is not whole, or more than there are candidates."""
    if not 1 <= operator.index(k) <= num_candidates:
        raise ValueError(f"k={k}, but each query has {num_candidates} candidates. Choose k from 1 to {num_candidates}.")


def blocks(total, most):
    """(start, stop) of consecutive blocks of at most `most` rows, of nearly equal size."""
    count = -(-total // max(1, most))
    bounds = [total * i // count for i in range(count + 1)]
    return list(itertools.pairwise(bounds))


class _Directions:
    """Checked rows of features [n, D], float32 or float64, with their lengths float64 [n] (1 for zero rows)."""

    def __init__(self, name, features):
        features = np.asarray(features)
        if features.ndim != 2 or 0 in features.shape:
            raise ValueError(
                f"{name} has shape {features.shape}, expected [rows, features], none of them 0. Flatten images."
            )
        if features.dtype == np.float64:
            # By a power of two, which rounds nothing: squares of very large or small numbers would leave the range.
            largest = np.maximum(features.max(axis=1), -features.min(axis=1))
            features = np.ldexp(features, -np.frexp(largest)[1][:, None])
        elif features.dtype != np.float32:
            features = features.astype(np.float32)
        self.rows = features
        self.size = features.shape[1]
        spans = blocks(len(self), BLOCK_VALUES // self.size)
        self.lengths = np.concatenate([_length(features[start:stop]) for start, stop in spans])
        is_finite = np.isfinite(self.lengths)
        if not is_finite.all():
            row = int(np.argmin(is_finite))
            raise ValueError(f"{name} has NaN or infinite values, first in row {row}. Has the network diverged?")
        self.lengths[self.lengths == 0] = 1

    def __len__(self):
        return len(self.rows)

    def unit(self, start, stop):
        """Rows start..stop-1 scaled to length 1 (zero rows stay zero), float32."""
        scaled = np.empty((stop - start, self.size), np.float32)
        return np.divide(self.rows[start:stop], self.lengths[start:stop, None], out=scaled, casting="same_kind")


def _length(rows):
    rows = rows.astype(np.float64)
    return np.sqrt(np.einsum("nd,nd->n", rows, rows))


def _search(bank, queries, k, on_queries):
    candidates = _candidates(bank, queries, min(k + SPARE, len(bank)), on_queries)
    candidates.sort(axis=1)  # so that a stable sort by similarity leaves ties to the lower row
    found = Neighbours(np.empty((len(queries), k), np.int64), np.empty((len(queries), k)))
    for start, stop in blocks(len(queries), BLOCK_VALUES // (candidates.shape[1] * bank.size)):
        rows = candidates[start:stop]  # [B, SPARE + k]
        # Cast before einsum: with casts of its own it may add up equal rows in different orders.
        ours, theirs = queries.rows[start:stop].astype(np.float64), bank.rows[rows].astype(np.float64)
        similarity = np.einsum("bkd,bd->bk", theirs, ours) / (bank.lengths[rows] * queries.lengths[start:stop, None])
        order = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
        found.rows[start:stop] = np.take_along_axis(rows, order, axis=1)
        found.similarity[start:stop] = np.take_along_axis(similarity, order, axis=1)
    return found


def _candidates(bank, queries, count, on_queries):
    """Rows of the `count` bank rows nearest to each query by float32 arithmetic, int64 [M, count]."""
    values = np.full((len(queries), count), -np.inf, np.float32)
    rows = np.zeros((len(queries), count), np.int64)
    for start, stop in blocks(len(bank), min(BANK_ROWS, BANK_VALUES // bank.size)):
        part = tf.constant(bank.unit(start, stop))
        for first, last in blocks(len(queries), BLOCK_VALUES // (stop - start)):
            better = _merge(part, start, queries.unit(first, last), values[first:last], rows[first:last])
            values[first:last], rows[first:last] = (tensor.numpy() for tensor in better)
            if on_queries is not None:  # in whole queries: those of earlier parts of the bank count by their share
                on_queries((start * len(queries) + (stop - start) * last) // len(bank))
    return rows


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([None, None], tf.int64),
    ]
)
def _merge(bank, first_row, queries, values, rows):
    """The best `values` [B, k] and their `rows` [B, k] among these and the part of the bank from `first_row` on."""
    count = tf.shape(values)[1]
    similarity = tf.matmul(queries, bank, transpose_b=True)  # [B, n]
    found, columns = _best(similarity, tf.minimum(count, tf.shape(bank)[0]))
    # Lower rows stand first, and top_k takes the first of equals.
    values, places = tf.math.top_k(tf.concat([values, found], axis=1), count)
    return values, tf.gather(tf.concat([rows, first_row + columns], axis=1), places, batch_dims=1)


def _best(similarity, k):
    """(values, columns) [B, k] of the `k` best of `similarity` [B, n], k <= n; of equals the lower columns."""
    n = tf.shape(similarity)[1]
    size = tf.cast(tf.sqrt(tf.cast(n // k, tf.float32)), tf.int32)  # g; g * g * k <= n, so there are at least k groups
    groups = n // size
    grouped = tf.reshape(similarity[:, : groups * size], (-1, groups, size))
    chosen = tf.sort(tf.math.top_k(tf.reduce_max(grouped, axis=2), k, sorted=False).indices, axis=1)  # [B, k]
    inside = tf.reshape(tf.gather(grouped, chosen, batch_dims=1), (-1, k * size))
    values, places = tf.math.top_k(tf.concat([inside, similarity[:, groups * size :]], axis=1), k)
    chosen = tf.pad(chosen, [[0, 0], [0, 1]], constant_values=groups)  # the rest is one more group, though short
    columns = tf.gather(chosen, places // size, batch_dims=1) * size + places % size
    return values, tf.cast(columns, tf.int64)
