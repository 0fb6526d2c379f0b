"""One reading of the scores: everything the solver wants to know at one point, in a compiled fused pass.

Per row block and with S_i = softmax_k(lambda log p_ik + a_k), row maximum M_i taken out: the sums over rows of S [K],
of M, of sum_k S_ik x_ik (x: scores less M), and S^T S [K, K] when asked for. The sums stay on the device until the
reading is over: one wait per reading, none per block. Dynamic shapes: a new N or K costs no new trace.
"""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from selabel_tf.labelling.scores import first_bad_row, refuse_bad_rows

WIDE_SCORES = 4096.0  # float32 scores beyond this are coarser than 2e-4, and so would be the ratios within a row


@dataclass(frozen=True)
class Reading:
    """What one reading finds at log_alpha [K] and lambda.

    masses: float64 [K], column masses of the plan, sum 1. gram: float64 [K, K], S^T S / N, or None.
    best_score: mean over rows of M_i. excess: mean over rows of sum_k S_ik x_ik, at most 0.
    """

    lambda_: float
    log_alpha: np.ndarray
    masses: np.ndarray
    gram: np.ndarray | None
    best_score: float
    excess: float

    def error(self, weights):
        """L1 distance of the masses to the wanted ones."""
        return float(np.abs(self.masses - weights).sum())

    def cost(self):
        """Mean over rows of the plan's expected -log p."""
        return float(self.masses @ self.log_alpha - self.best_score - self.excess) / self.lambda_

    def bound(self, weights):
        """The dual value of f = log_alpha / lambda: no assignment with the wanted masses costs less."""
        return float(weights @ self.log_alpha - self.best_score) / self.lambda_


@dataclass(frozen=True)
class Survey:
    """What the first reading learns about the scores themselves.

    largest: the largest |log p|. spread: mean over all entries of (row maximum - log p).
    column_gaps: [K], max_i(log p_ik - row maximum), 0 where a cluster is some row's best.
    """

    largest: float
    spread: float
    column_gaps: np.ndarray


class Reader:
    """Reads row blocks, counting. `survey` is there after the first reading, which also refuses bad values."""

    def __init__(self, blocks, *, with_gram, wide):
        self._blocks, self._with_gram, self._wide = blocks, with_gram, wide
        self.num_passes = 0
        self.survey = None

    def read(self, lambda_, log_alpha) -> Reading:
        """One pass over all blocks at lambda and log_alpha [K]."""
        first = self.survey is None
        wide = self._wide or first or lambda_ * self.survey.largest + np.abs(log_alpha).max() > WIDE_SCORES
        block_sums = _BLOCK_SUMS[wide, self._with_gram]
        dtype = np.float64 if wide else np.float32
        arguments = tf.constant(lambda_, dtype), tf.constant(log_alpha, dtype)
        totals, surveys = None, []
        for block in self._blocks:
            sums = block_sums(block, *arguments)
            totals = sums if totals is None else [total + part for total, part in zip(totals, sums, strict=True)]
            if first:
                surveys.append(_survey_block(block))
        if first:
            self._gather(surveys)
        self.num_passes += 1
        masses, scalars, *gram = [total.numpy() / self._blocks.num_rows for total in totals]
        gram = gram[0] if gram else None
        return Reading(lambda_, np.asarray(log_alpha), masses / masses.sum(), gram, *map(float, scalars))

    def _gather(self, surveys):
        rows, first_bad, largest, spreads, gaps = (np.array(column) for column in zip(*surveys, strict=True))
        refuse_bad_rows(first_bad, rows)
        self.survey = Survey(largest.max(), spreads.sum() / rows.sum(), gaps.max(0))


def _compiled(wide, with_gram):
    dtype = tf.float64 if wide else tf.float32
    signature = [
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([], dtype),
        tf.TensorSpec([None], dtype),
    ]

    @tf.function(input_signature=signature)
    def block_sums(log_p, lambda_, log_alpha):
        scores = lambda_ * tf.cast(log_p, dtype) + log_alpha  # [n, K]
        best = tf.reduce_max(scores, axis=1, keepdims=True)  # [n, 1]
        scores -= best
        plan = tf.exp(scores)
        inverse = 1 / tf.reduce_sum(plan, axis=1)  # [n]
        masses = tf.linalg.matvec(plan, inverse, transpose_a=True)  # [K]
        excess = tf.einsum("nk,nk->n", plan, scores) * inverse
        scalars = tf.stack([tf.reduce_sum(tf.cast(x, tf.float64)) for x in (best, excess)])
        if not with_gram:
            return tf.cast(masses, tf.float64), scalars
        plan *= inverse[:, None]
        gram = tf.matmul(plan, plan, transpose_a=True)  # [K, K]
        return tf.cast(masses, tf.float64), scalars, tf.cast(gram, tf.float64)

    return block_sums


_BLOCK_SUMS = {(wide, gram): _compiled(wide, gram) for wide in (False, True) for gram in (False, True)}


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
def _survey_block(log_p):
    """Rows, first row with a non-finite value or -1, largest |log p|, sum over rows of mean gap, column gaps [K]."""
    wide = tf.cast(log_p, tf.float64)  # the gap of two large finite float32 numbers may overflow float32
    gaps = wide - tf.reduce_max(wide, axis=1, keepdims=True)
    spread = -tf.reduce_sum(tf.reduce_mean(gaps, axis=1))
    largest = tf.reduce_max(tf.abs(wide))
    return tf.shape(log_p)[0], first_bad_row(log_p), largest, spread, tf.reduce_max(gaps, axis=0)
