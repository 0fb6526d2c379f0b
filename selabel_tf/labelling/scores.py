"""Scores as row blocks: how the N x K log-probabilities reach the solver and the roundings.

A matrix [N, K] is cut into blocks of 8192 rows (small enough to stay a fraction of the matrix, large enough that
starting a TensorFlow operation costs nothing beside it). A re-iterable of blocks [n_b, K] passes through as it is, so
blocks may live in RAM, on disk or be computed when asked for. Every block leaves as a float32 tensor; NumPy
matrices, memory-mapped ones included, are converted block by block and never stand in memory twice.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

ROWS_PER_BLOCK = 8192


class RowBlocks:
    """The scores of N examples over K clusters, readable any number of times.

    log_p: array or tensor [N, K], or a re-iterable of such blocks [n_b, K]. Values are not looked at here.
    `num_clusters` is known at once; `num_rows` of a re-iterable is None until its first complete reading, unless it has
    an attribute of that name.
    `kernel_form`: what the solver may keep beside the scores, as the arguments of `kernel.Kernel`. A source that has an
    attribute of that name decides; otherwise it is a float32 copy in memory.
    """

    def __init__(self, log_p):
        self.kernel_form = getattr(log_p, "kernel_form", ("float32", None))
        if isinstance(log_p, RowBlocks):
            self._blocks, self.num_rows, self.num_clusters = log_p._blocks, log_p.num_rows, log_p.num_clusters
        elif isinstance(log_p, Iterator):
            raise TypeError(
                f"log_p is a {type(log_p).__name__}, which can be read only once; the solver reads it many times. "
                "Pass a list of row blocks, or an object whose __iter__ starts again."
            )
        elif hasattr(log_p, "shape") and hasattr(log_p, "dtype"):
            self.num_rows, self.num_clusters = _checked_shape(log_p, "log_p")
            _check_size(self.num_rows, self.num_clusters)
            self._blocks = _Slices(log_p)
        elif isinstance(log_p, Iterable) and not isinstance(log_p, str | bytes | dict):
            self._blocks = log_p
            self.num_rows, self.num_clusters = getattr(log_p, "num_rows", None), None
            first = next(iter(self), np.empty([0, 0]))  # a peek at one block, not a reading
            if 0 in first.shape:
                _check_size(*first.shape)
            self.num_clusters = int(first.shape[1])
        else:
            raise TypeError(
                f"log_p is a {type(log_p).__name__}; expected a matrix [N, K] or a re-iterable of row blocks [n, K]."
            )

    def __iter__(self):
        """One reading: float32 tensors [n_b, K], rows in order, empty blocks left out."""
        rows = 0
        for number, block in enumerate(self._blocks):
            if not hasattr(block, "shape"):
                block = np.asarray(block)
            block_rows, block_clusters = _checked_shape(block, f"Block {number} of log_p")
            if self.num_clusters not in (None, block_clusters):
                raise ValueError(
                    f"Block {number} of log_p has {block_clusters} columns, the first block {self.num_clusters}. "
                    "All row blocks must have the same number of clusters."
                )
            rows += block_rows
            if block_rows:
                yield tf.cast(tf.convert_to_tensor(block), tf.float32)
        if self.num_rows is None and self.num_clusters is not None:
            _check_size(rows, self.num_clusters)
            self.num_rows = rows
        elif self.num_rows not in (None, rows):
            raise ValueError(
                f"log_p gave {self.num_rows} rows when first read and {rows} now. "
                "Every iteration must yield the same row blocks."
            )


class _Slices:
    """A matrix [N, K] as a re-iterable of its row blocks (views: nothing is copied)."""

    def __init__(self, matrix):
        self._matrix = matrix

    def __iter__(self):
        for start in range(0, int(self._matrix.shape[0]), ROWS_PER_BLOCK):
            yield self._matrix[start : start + ROWS_PER_BLOCK]


def first_bad_row(log_p):
    """Index of the first row of a block [n, K] with a NaN or infinite value, or -1: int64 []."""
    bad = tf.reduce_any(~tf.math.is_finite(log_p), axis=1)
    return tf.where(tf.reduce_any(bad), tf.argmax(tf.cast(bad, tf.int32)), -1)


def refuse_bad_rows(first_bad_rows, block_rows):
    """Raise if any block, given its `first_bad_row` and its number of rows, has a bad one."""
    for number, bad in enumerate(first_bad_rows):
        if bad >= 0:
            raise ValueError(
                f"log_p has a NaN or infinite value in row {sum(block_rows[:number]) + int(bad)}. "
                "Clip log(0) to a large negative number such as -1000; look for NaN in the network's weights."
            )


def wanted_weights(cluster_weights, num_clusters):
    """Cluster weights as float64 [K] that sum to one; None means uniform."""
    if cluster_weights is None:
        return np.full(num_clusters, 1.0 / num_clusters)
    weights = np.asarray(cluster_weights, np.float64)
    if weights.shape != (num_clusters,):
        raise ValueError(
            f"cluster_weights has shape {weights.shape}; expected one weight for each of the {num_clusters} clusters."
        )
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError(f"cluster_weights must be positive and finite, got {weights.min()} as the smallest.")
    return weights / weights.sum()


def checked_log_alpha(log_alpha, num_clusters):
    """Log-scalings as float64 [K], one finite number per cluster."""
    log_alpha = np.asarray(log_alpha, np.float64)
    if log_alpha.shape != (num_clusters,):
        raise ValueError(
            f"log_alpha has shape {log_alpha.shape}; expected ({num_clusters},), one value per cluster. "
            "It belongs to another head: solve anew without it."
        )
    if not np.isfinite(log_alpha).all():
        raise ValueError("log_alpha has NaN or infinite values. Solve anew without it.")
    return log_alpha


def checked_lambda(lambda_):
    """lambda as a float in (0, 1e6]: beyond that even float64 scores lose the differences that matter."""
    if not 0 < lambda_ <= 1e6:
        raise ValueError(f"lambda_={lambda_}; expected a number above 0 and at most 1e6 (the paper uses 25).")
    return float(lambda_)


def _checked_shape(block, name):
    if len(block.shape) != 2:
        raise ValueError(f"{name} has shape {tuple(block.shape)}; expected two axes [examples, clusters].")
    return int(block.shape[0]), int(block.shape[1])


def _check_size(rows, clusters):
    if rows == 0 or clusters == 0:
        raise ValueError(f"log_p is empty: {rows} examples, {clusters} clusters. There is nothing to label.")
    if rows < clusters:
        raise ValueError(
            f"{rows} examples cannot fill {clusters} clusters. Use at most {rows} clusters, or more examples."
        )
