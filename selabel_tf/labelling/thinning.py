"""Newton's method on the plan without its small entries: few readings of the kernel where lambda is sharp.

There nearly all of a row's mass lies on a few clusters. With S the plan's rows at scalings a0, T its entries above a
threshold (a sparse matrix), d_i the mass of the rest of row i, and v = exp(a - a0), nearly

    S = diag(1 / r) T diag(v),  r = T v + d        at a, without a reading
    H = diag(m) - S^T S / N                        the Hessian (`newton`), m being the masses that the kernel gave

and the step solves H step = m (log w - log m). The mass of small entries stays on the diagonal: were all entries small,
the step would be Sinkhorn's. So each reading of the kernel reduces the error many times, and where it does not the plan
is not thin: `lost` says so.
"""

import numpy as np
import scipy.linalg
import scipy.sparse

# Shares kept, tried in this order: (above this, at most so many in a row on average). Best far below what matters
# now, for the scalings will move; a smoother plan has more entries, but they change less.
THRESHOLDS = ((1e-8, 16), (1e-3, 64))
NOTABLE = 1e-4  # a product of smaller shares is left out of S^T S
ROWS_PER_SQUARE = 1 / 100  # times K^2: with fewer rows than that, readings are cheaper than solving with H
DAMPING = 0.2  # of the error times w, added to the diagonal: groups of clusters may hang together by a thread
LEAST_DAMPING = 1e-4
WORTH = 0.5  # part of the error that a step may leave


class Thinned:
    """Proposes the next log-scalings [K] from the masses [K] of the last, like Anderson and Newton.

    counts [N]: large entries per row; columns, values: of all of them, row by row: shares at `log_alpha` [K].
    weights: the wanted masses [K].
    """

    needs_gram = False

    def __init__(self, counts, columns, values, log_alpha, weights):
        self._large = _by_rows(counts, columns, values, len(weights))
        self._row = np.repeat(np.arange(len(counts), dtype=np.int32), counts)  # of each entry
        self._base, self._weights = log_alpha, weights
        self._rest = np.maximum(1 - self._large.sum(axis=1), 0)
        self._last_error = np.inf
        self.lost = False

    def restart(self):
        """Nothing is remembered that could mislead."""

    def propose(self, log_alpha, masses, gram=None):
        """log_alpha [K] with its masses [K] -> the next log_alpha [K]; sets `lost` when the last was little better."""
        error = np.abs(masses - self._weights).sum()
        self.lost, self._last_error = error > WORTH * self._last_error, error
        gram = self._gram(log_alpha)
        hessian = np.outer(self._weights, self._weights) - gram  # constants, its null space, filled
        damping = max(LEAST_DAMPING, DAMPING * error) * self._weights
        hessian[np.diag_indices_from(hessian)] += np.maximum(masses, gram.sum(axis=1)) + damping
        slope = masses * np.log(self._weights / np.maximum(masses, 1e-30))
        try:  # float32 is as good here and twice as fast
            return log_alpha + scipy.linalg.solve(hessian.astype(np.float32), slope, assume_a="pos", overwrite_a=True)
        except np.linalg.LinAlgError:
            return log_alpha + scipy.linalg.solve(hessian, slope)

    def _gram(self, log_alpha):
        move = log_alpha - self._base
        scaling = np.exp(np.clip(move - self._weights @ move, -40, 40))
        inverse = 1 / (self._large @ scaling + self._rest)
        values = self._large.data * scaling[self._large.indices] * inverse[self._row]
        notable = np.flatnonzero(values > NOTABLE)
        counts = np.bincount(self._row[notable], minlength=len(inverse))
        shares = _by_rows(counts, self._large.indices[notable], values[notable], len(scaling))
        return (shares.T @ shares).toarray() / len(inverse)


def _by_rows(counts, columns, values, num_columns):
    """Sparse matrix of `counts` entries in each row."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    return scipy.sparse.csr_array((values, columns, ends), shape=(len(counts), num_columns))
