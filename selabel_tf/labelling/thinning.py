"""Newton's method on the plan without its small entries: few readings of the kernel where lambda is sharp.

There nearly all of a row's mass lies on a few clusters. With S the plan's rows at scalings a0, T its entries above a
threshold (a sparse matrix), d_i the mass of the rest of row i, and v = exp(a - a0), nearly

    S = diag(1 / r) T diag(v),  r = T v + d        at a, without a reading
    H = diag(m) - S^T S / N                        the Hessian (`newton`), m being the masses

and a step solves H step = m (log w - log m): in the logarithm, so that a starved cluster is not flung away. The mass
of small entries, by cluster, is the difference to what the kernel found; it grows with v and stays on the diagonal:
were all entries small, the step would be Sinkhorn's. Steps are repeated on T alone until it is solved, and then the
kernel is read. What that finds may be better by less than promised: other entries are large there, and T `is_outdated`.
Or hardly better at all: the plan is not thin, and `lost` says so.
"""

import numpy as np
import scipy.linalg
import scipy.sparse

from selabel_tf.labelling.host import one_blas_thread

# Shares kept, tried in this order: (above this, at most so many in a row on average). Best far below what matters
# now, for the scalings will move; a smoother plan has more entries, but they change less.
THRESHOLDS = ((1e-16, 16), (1e-8, 16), (1e-3, 64))
NOTABLE = 1e-4  # a product of smaller shares is left out of S^T S
ROWS_PER_SQUARE = 1 / 100  # times K^2: with fewer rows than that, readings are cheaper than solving with H
STEPS = 8  # between readings, at most
ENOUGH = 0.25  # part of the tolerance to reach without a reading,
ROUGHNESS = 0.1  # or this part of what the small entries may do to the error
DAMPING = 0.2  # of the error times w, added to the diagonal: groups of clusters may hang together by a thread
LEAST_DAMPING = 1e-4
EASING = 4.0  # the damping is divided by this after a step that helped, and multiplied by its square after another
LONGEST = 6.0  # a scaling moves by no more in one step: the plan is another one there
WORTH = 0.5  # part of the error that a proposal may leave
BROKEN = 1.5  # times what was promised (or 1% of the error before): T is outdated


class Thinned:
    """Proposes the next log-scalings [K] from the masses [K] of the last, like Anderson and Newton.

    counts [N]: large entries per row; columns, values: of all of them, row by row: shares at `log_alpha` [K].
    weights: the wanted masses [K]. tolerance: marginal error that is wanted in the end.
    """

    needs_gram = False

    def __init__(self, counts, columns, values, log_alpha, weights, tolerance):
        self._large = _by_rows(counts, columns, values, len(weights))
        self._row = np.repeat(np.arange(len(counts), dtype=np.int32), counts)  # of each entry
        self._base, self._weights, self._tolerance = log_alpha, weights, tolerance
        self._rest = np.maximum(1 - self._large.sum(axis=1), 0)
        self._last_error = self._promised = np.inf
        self.lost = False

    def restart(self):
        """Nothing is remembered that could mislead."""

    def is_outdated(self, error):
        """Whether the last proposal, which left this error, has helped, but by far less than promised."""
        return BROKEN * max(self._promised, 0.01 * self._last_error) < error <= WORTH * self._last_error

    def propose(self, log_alpha, masses, gram=None):
        """log_alpha [K] with its masses [K] -> the next log_alpha [K]; sets `lost` when the last was little better."""
        error = np.abs(masses - self._weights).sum()
        self.lost, self._last_error = error > WORTH * self._last_error, error
        rest = masses - self._masses(self._shares(log_alpha))
        small, rounding = np.maximum(rest, 0), np.minimum(rest, 0)
        enough = max(ENOUGH * self._tolerance, ROUGHNESS * small.sum() * error)
        proposal, least, damping = log_alpha, np.inf, DAMPING
        with one_blas_thread():
            for _ in range(STEPS):
                shares = self._shares(proposal)
                found = self._masses(shares) + small * self._scaling(proposal - log_alpha) + rounding
                found /= found.sum()
                error = np.abs(found - self._weights).sum()
                damping *= 1 / EASING if error < least else EASING**2
                if error < least:
                    best, best_masses, least = proposal, found, error
                    if error <= enough:
                        break
                    gram = self._gram(shares)
                proposal = best + self._step(best_masses, gram, damping * least)
        self._promised = least
        return best

    def _step(self, masses, gram, damping):
        hessian = np.outer(self._weights, self._weights) - gram  # constants, its null space, filled
        damping = max(LEAST_DAMPING, damping) * self._weights
        hessian[np.diag_indices_from(hessian)] += np.maximum(masses, gram.sum(axis=1)) + damping
        slope = masses * np.log(self._weights / np.maximum(masses, 1e-30))
        try:  # float32 is as good here and twice as fast
            factor = scipy.linalg.cho_factor(hessian.astype(np.float32), overwrite_a=True, check_finite=False)
            step = scipy.linalg.cho_solve(factor, slope.astype(np.float32), check_finite=False)
        except np.linalg.LinAlgError:
            step = scipy.linalg.solve(hessian, slope)
        return np.clip(step - self._weights @ step, -LONGEST, LONGEST)

    def _scaling(self, move):
        return np.exp(np.clip(move - self._weights @ move, -40, 40))

    def _shares(self, log_alpha):
        """S at log_alpha, of all large entries."""
        scaling = self._scaling(log_alpha - self._base)
        inverse = 1 / (self._large @ scaling + self._rest)
        return self._large.data * scaling[self._large.indices] * inverse[self._row]

    def _masses(self, shares):
        return np.bincount(self._large.indices, shares, len(self._weights)) / len(self._rest)

    def _gram(self, shares):
        """S^T S / N of the notable ones."""
        notable = np.flatnonzero(shares > NOTABLE)
        counts = np.bincount(self._row[notable], minlength=len(self._rest))
        shares = _by_rows(counts, self._large.indices[notable], shares[notable], len(self._weights))
        return (shares.T @ shares).toarray() / len(self._rest)


def _by_rows(counts, columns, values, num_columns):
    """Sparse matrix of `counts` entries in each row."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    return scipy.sparse.csr_array((values, columns, ends), shape=(len(counts), num_columns))
