"""Weighted k-nearest-neighbour classification: how good are features without training anything on them?

    s_ij    = <q_i, b_j> / (|q_i| |b_j|)               cosine similarity of query i and bank row j
    vote_ic = sum over the k nearest j of class c of exp(s_ij / sigma)
    class_i = argmax_c vote_ic

exp(s / sigma) is taken relative to the nearest neighbour, exp((s - s_max) / sigma): the same argmax, and no
overflow at any sigma. A zero vector has no direction: its similarity to everything is 0. Equal similarities
go to the lower bank row, equal votes to the smaller class, so the answer never depends on chance.

Queries are taken in blocks: the largest tensor is [block, N], or [block, k, C] for the votes, of about
BLOCK_VALUES numbers.
"""

import operator

import numpy as np
import tensorflow as tf

BLOCK_VALUES = 2**23  # 32 MB of float32; far smaller blocks leave the matmul without work


def knn_predict(bank, bank_classes, queries, *, k=50, sigma=0.1) -> np.ndarray:
    """Classes [M] of `queries` [M, D] by the `k` nearest rows of `bank` [N, D]; `bank_classes`: [N]."""
    bank, queries = _unit_rows("bank", bank), _unit_rows("queries", queries)
    if queries.shape[1] != bank.shape[1]:
        raise ValueError(
            f"queries have {queries.shape[1]} features and the bank has {bank.shape[1]}. "
            "Extract both with the same network."
        )
    bank_classes = _one_per_row("bank_classes", bank_classes, bank)
    return _predict(bank, bank_classes, queries, k, sigma, num_candidates=len(bank), own_rows=np.empty(0, np.int64))


def knn_accuracy(bank, bank_classes, queries, query_classes, *, k=50, sigma=0.1) -> float:
    """Share of `queries` [M, D] whose predicted class is the one in `query_classes` [M]."""
    query_classes = _one_per_row("query_classes", query_classes, queries)
    return float(np.mean(knn_predict(bank, bank_classes, queries, k=k, sigma=sigma) == query_classes))


def leave_one_out_accuracy(features, classes, *, k=50, sigma=0.1) -> float:
    """Share of rows of `features` [N, D] classified right by the other rows: for sets with no test split."""
    features = _unit_rows("features", features)
    classes = _one_per_row("classes", classes, features)
    every_row = np.arange(len(features))
    predicted = _predict(features, classes, features, k, sigma, num_candidates=len(features) - 1, own_rows=every_row)
    return float(np.mean(predicted == classes))


def _predict(bank, bank_classes, queries, k, sigma, *, num_candidates, own_rows):
    """bank [N, D], queries [M, D]: unit rows; own_rows: [M], the bank row query i must not see, or empty."""
    k = operator.index(k)
    if not 1 <= k <= num_candidates:
        raise ValueError(f"k={k}, but each query has {num_candidates} candidates. Choose k from 1 to {num_candidates}.")
    if not np.float32(sigma) > 0:
        raise ValueError(f"sigma={sigma} must be positive (the usual value is 0.1).")

    names, codes = np.unique(bank_classes, return_inverse=True)
    bank, codes = tf.constant(bank), tf.constant(codes, tf.int32)
    block = max(1, BLOCK_VALUES // max(len(bank), k * len(names)))
    predicted = []
    for start in range(0, len(queries), block):
        own = own_rows[start : start + block]
        hidden = np.stack([np.arange(len(own)), own], axis=1)  # [block or 0, 2]: places in the similarities
        predicted.append(_vote(bank, codes, queries[start : start + block], hidden, k, sigma, len(names)).numpy())
    return names[np.concatenate(predicted)]


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([None, 2], tf.int64),
        tf.TensorSpec([], tf.int32),
        tf.TensorSpec([], tf.float32),
        tf.TensorSpec([], tf.int32),
    ]
)
def _vote(bank, codes, queries, hidden, k, sigma, num_classes):
    """Winning class code [B] for each of the B queries."""
    similarity = tf.matmul(queries, bank, transpose_b=True)  # [B, N]
    below_all = tf.fill(tf.shape(hidden)[:1], -np.inf)
    similarity = tf.tensor_scatter_nd_update(similarity, hidden, below_all)
    nearest, rows = tf.math.top_k(similarity, k)  # [B, k], descending; ties: the lower row first
    weights = tf.exp((nearest - nearest[:, :1]) / sigma)
    # One-hot and matmul rather than a scatter: a scatter adds in any order on GPUs.
    votes = tf.linalg.matvec(tf.one_hot(tf.gather(codes, rows), num_classes), weights, transpose_a=True)  # [B, C]
    # tf.argmax does not promise which of several maxima it returns.
    is_best = votes == tf.reduce_max(votes, axis=1, keepdims=True)
    return tf.reduce_min(tf.where(is_best, tf.range(num_classes), num_classes), axis=1)


def _unit_rows(name, features):
    """`features` [N, D] scaled to rows of length 1 (zero rows stay zero), float32."""
    features = np.asarray(features)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            f"{name} has shape {features.shape}, expected [rows, features], none of them 0. Flatten images."
        )
    if features.dtype not in (np.float32, np.float64):
        features = features.astype(np.float32)
    # First by the largest magnitude: squares of very large or small features would leave float32's range.
    largest = np.maximum(features.max(axis=1, keepdims=True), -features.min(axis=1, keepdims=True))
    if not np.isfinite(largest).all():
        row = int(np.flatnonzero(~np.isfinite(largest[:, 0]))[0])
        raise ValueError(f"{name} has NaN or infinite values, first in row {row}. Has the network diverged?")
    features = features / np.where(largest > 0, largest, 1)
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return (features / np.where(length > 0, length, 1)).astype(np.float32)


def _one_per_row(name, classes, rows):
    classes = np.asarray(classes)
    if classes.shape != (len(rows),):
        raise ValueError(
            f"{name} has shape {classes.shape}, expected ({len(rows)},): one class for each row of features."
        )
    return classes
