"""One reading of the scores: everything the solver wants to know at one point, in a compiled fused pass.

Per row block and with S_i = softmax_k(lambda log p_ik + a_k), row maximum M_i taken out: the sums over rows of S [K],
of M, of sum_k S_ik x_ik (x: scores less M), and S^T S [K, K] when asked for. The sums stay on the device until the
reading is over: one wait per reading, none per block. Dynamic shapes: a new N or K costs no new trace. Blocks on
several devices are summed where they lie, and only the sums meet.

Blocks in main memory are read by NumPy (`host`) unless float64 or the Gram matrix is wanted: several times faster.

Such a reading is exact. It can leave a `Kernel` behind, from which the masses near its log_alpha are read much faster.
"""

from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from selabel_tf.labelling import thinning
from selabel_tf.labelling.host import SMALLEST_EXPONENT, Host
from selabel_tf.labelling.scores import ROWS_PER_BLOCK, first_bad_row, refuse_bad_rows

HOST = "CPU"  # device type whose tensors NumPy can read in place
WIDE_SCALINGS = 2048.0  # sums of float32 numbers beyond this are coarser than 2e-4, and so would be ratios in a row


@dataclass(frozen=True)
class Reading:
    """What one reading finds at log_alpha [K] and lambda.

    masses: float64 [K], column masses of the plan, sum 1. gram: float64 [K, K], S^T S / N, or None.
    best_score: mean over rows of M_i. excess: mean over rows of sum_k S_ik x_ik, at most 0. Both None from a kernel
    that was not asked for them.
    """

    lambda_: float
    log_alpha: np.ndarray
    masses: np.ndarray
    gram: np.ndarray | None = None
    best_score: float | None = None
    excess: float | None = None

    @property
    def exact(self):
        """Whether this is as good as of the scores themselves, with a certificate."""
        return self.best_score is not None

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

    spread: mean over all entries of (row maximum - log p).
    column_gaps: [K], max_i(log p_ik - row maximum), 0 where a cluster is some row's best.
    """

    spread: float
    column_gaps: np.ndarray


class Reader:
    """Reads row blocks, counting. The first reading surveys them, unless a sample told where to read.

    Values that are not finite are refused by the first reading, if not by the sample.

    kernel: a Kernel to read from where that is possible, or None.
    """

    def __init__(self, blocks, *, with_gram=False, wide=False, kernel=None):
        self._blocks, self._with_gram, self._wide, self._kernel = blocks, with_gram, wide, kernel
        self.num_passes = 0
        self._survey, self._sampled = None, False

    @property
    def survey(self) -> Survey:
        """What there is to know of the scores themselves; a pass, unless the first reading has brought it."""
        if self._survey is None:
            surveys = []
            with Host() as host:
                for block in self._blocks:
                    _survey(host, block, surveys)
            self._gather(surveys)
            self.num_passes += 1
        return self._survey

    def read(self, lambda_, log_alpha) -> Reading:
        """One pass over all rows at lambda and log_alpha [K]: of the kernel where it serves, else of the scores."""
        if self._kernel is None or not self._kernel.holds(lambda_, log_alpha):
            return self.read_scores(lambda_, log_alpha, keep=self._kernel is not None)
        self.num_passes += 1
        return Reading(lambda_, log_alpha, self._kernel.masses(log_alpha))

    @property
    def has_kernel(self):
        return self._kernel is not None

    @property
    def num_rows(self):
        """N; None before the first reading of row blocks that do not tell."""
        return self._blocks.num_rows

    @property
    def gram_operations(self):
        """What S^T S costs in a reading: N K^2."""
        return self._blocks.num_rows * self._blocks.num_clusters**2

    def read_with_gram(self):
        """From here on every reading is exact and brings the Gram matrix."""
        if self._kernel is not None:
            self._kernel.close()
        self._kernel, self._with_gram = None, True

    def confirm(self, reading) -> Reading:
        """A reading of the kernel with its certificate: from the kernel too where that is exact, else from the scores.

        Those correct the kernel.
        """
        if self._kernel.is_exact(reading.log_alpha):
            self.num_passes += 1
            raised, excess = self._kernel.certificate(reading.log_alpha)
            return replace(reading, best_score=float(self._base_score + raised), excess=float(excess))
        exact = self.read_scores(reading.lambda_, reading.log_alpha)
        if self._kernel.holds(reading.lambda_, reading.log_alpha):
            self._kernel.correct(exact.masses, reading.masses)
        return exact

    def read_scores(self, lambda_, log_alpha, *, keep=False) -> Reading:
        """One pass over the scores at lambda and log_alpha [K]; `keep`: leave a kernel behind."""
        first = self._survey is None and not self._sampled
        wide = self._wide or np.ptp(log_alpha) > WIDE_SCALINGS
        compiled = _BLOCK_SUMS[wide, self._with_gram, keep]
        dtype = np.float64 if wide else np.float32
        arguments = tf.constant(lambda_, dtype), tf.constant(log_alpha, dtype)
        if keep:
            self._kernel.begin(lambda_, log_alpha)
        totals, surveys = {}, []
        with Host() as host:
            for block in self._blocks:
                if first:
                    _survey(host, block, surveys)
                plan = None
                with tf.device(block.device):
                    if HOST in block.device and not (wide or self._with_gram):
                        plan = np.empty(block.shape, np.float32) if keep else None
                        masses, *scalars = host.plan_sums(np.asarray(block), lambda_, log_alpha, plan)
                        sums = [tf.constant(masses, tf.float64), tf.constant(scalars, tf.float64)]
                    else:
                        sums = compiled(block, *arguments)
                        if keep:
                            *sums, plan = sums
                            plan = np.asarray(plan) if HOST in block.device else plan
                    if keep:
                        self._kernel.keep(plan)
                    before = totals.get(block.device)
                    totals[block.device] = (
                        sums if before is None else [total + part for total, part in zip(before, sums, strict=True)]
                    )
        if first:
            self._gather(surveys)
        self.num_passes += 1
        total = [sum(part.numpy() for part in parts) for parts in zip(*totals.values(), strict=True)]
        masses, scalars, *gram = [part / self._blocks.num_rows for part in total]
        if np.isnan(masses).any():
            self.survey  # noqa: B018  refuses, and says which row
        if keep:
            self._base_score = scalars[0]
        gram = gram[0] if gram else None
        return Reading(lambda_, np.asarray(log_alpha), masses / masses.sum(), gram, *map(float, scalars))

    def sample(self, num_rows) -> list[tf.Tensor]:
        """A pass that brings about `num_rows` rows, evenly drawn, always the same, as blocks."""
        random, share = np.random.Generator(np.random.Philox(0)), num_rows / self._blocks.num_rows
        rows, self._sampled = [], True
        for block in self._blocks:
            self._sampled &= HOST in block.device  # elsewhere the survey costs nothing, and alone looks for bad values
            chosen = np.flatnonzero(random.random(block.shape[0]) < share)
            rows.append(np.asarray(block)[chosen] if HOST in block.device else tf.gather(block, chosen).numpy())
        self.num_passes += 1
        rows = np.concatenate(rows)
        return [tf.constant(rows[start : start + ROWS_PER_BLOCK]) for start in range(0, len(rows), ROWS_PER_BLOCK)]

    def thinned(self, reading, weights, tolerance):
        """A pass over the kernel: `Thinned` at the place of a reading; None if the plan there is not thin."""
        for threshold, most in thinning.THRESHOLDS:
            found = self._kernel.large_shares(reading.log_alpha, threshold, most)
            if found is not None:
                break
        self.num_passes += 1
        return found and thinning.Thinned(*found, reading.log_alpha, weights, tolerance)

    def _gather(self, surveys):
        rows, first_bad, spreads, gaps = (np.array(column) for column in zip(*surveys, strict=True))
        refuse_bad_rows(first_bad, rows)
        self._survey = Survey(spreads.sum(dtype=np.float64) / rows.sum(), gaps.max(0).astype(np.float64))


def _compiled(wide, with_gram, keep):
    dtype = tf.float64 if wide else tf.float32
    signature = [
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([], dtype),
        tf.TensorSpec([None], dtype),
    ]

    @tf.function(input_signature=signature)
    def block_sums(log_p, lambda_, log_alpha):
        # Gaps first: log p less its row maximum is exact to a relative rounding however large both are.
        likeliest = tf.reduce_max(log_p, axis=1, keepdims=True)  # [n, 1]
        gaps = tf.cast(log_p, dtype) - tf.cast(likeliest, dtype)
        scores = lambda_ * gaps + log_alpha  # [n, K]
        best = tf.reduce_max(scores, axis=1, keepdims=True)  # [n, 1]
        scores = tf.maximum(scores - best, SMALLEST_EXPONENT)
        plan = tf.exp(scores)
        inverse = 1 / tf.reduce_sum(plan, axis=1)  # [n]
        masses = tf.linalg.matvec(plan, inverse, transpose_a=True)  # [K]
        excess = tf.reduce_sum(plan * scores, axis=1) * inverse
        best = tf.cast(best, tf.float64) + tf.cast(lambda_, tf.float64) * tf.cast(likeliest, tf.float64)
        scalars = tf.stack([tf.reduce_sum(best), tf.reduce_sum(tf.cast(excess, tf.float64))])
        sums = [tf.cast(masses, tf.float64), scalars]
        if with_gram:
            shares = plan * inverse[:, None]
            sums.append(tf.cast(tf.matmul(shares, shares, transpose_a=True), tf.float64))  # [K, K]
        if keep:
            sums.append(tf.cast(plan, tf.float32))
        return sums

    return block_sums


_BLOCK_SUMS = {
    (wide, gram, keep): _compiled(wide, gram, keep)
    for wide in (False, True)
    for gram in (False, True)
    for keep in (False, True)
}


def _survey(host, block, surveys):
    """Adds: rows, first row with a non-finite value or -1, sum over rows of the mean gap, column gaps [K]."""
    if HOST not in block.device:
        surveys.append(_survey_block(block))  # looked at when all are there: no wait for the device between blocks
        return
    spread, gaps = host.gaps(np.asarray(block))
    if not np.isfinite(spread):
        refuse_bad_rows([-1] * len(surveys) + [first_bad_row(block).numpy()], [rows for rows, *_ in surveys])
    surveys.append((block.shape[0], -1, spread, gaps))


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
def _survey_block(log_p):
    gaps = log_p - tf.reduce_max(log_p, axis=1, keepdims=True)
    gaps = tf.maximum(gaps, -1e30)  # the gap of two large finite float32 numbers may overflow
    spread = -tf.reduce_sum(tf.cast(tf.reduce_mean(gaps, axis=1), tf.float64))
    return tf.shape(log_p)[0], first_bad_row(log_p), spread, tf.reduce_max(gaps, axis=0)
