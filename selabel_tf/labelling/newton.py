"""Newton's method for the K log-scalings, safeguarded by slopes.

The scalings a maximise the concave  D(a) = sum_k w_k a_k - mean_i logsumexp_k(lambda log p_ik + a_k)  with

    gradient  g = w - m            m = column masses, S = row softmax
    Hessian  -H = -(diag(m) - S^T S / N)

H is a graph Laplacian over the clusters: constants are its null space (fixed by adding w w^T) and it is nearly
singular where a confident network leaves no row undecided between two groups of clusters. The step solves

    (H + mu |g|_1 diag(w) + w w^T) d = g        mu small after success, larger after failure: quadratic at the end

and is taken if D surely rose (D is concave: the slope g . d at the new point is still positive) or the marginal
error fell. Otherwise a shorter step along d, where the two slopes say the top lies, and a larger mu.
"""

import numpy as np


class Newton:
    """Proposes the next log-scalings [K] from the masses [K] and the Gram matrix S^T S / N [K, K] of the last."""

    needs_gram = True

    def __init__(self, weights):
        self._weights = weights
        self.restart()

    def restart(self):
        """Forget everything: the function to maximise is another one now."""
        self._damping = 1e-3
        self._base = None  # the last point taken: log_alpha, gradient, gram
        self._shortened = False

    def propose(self, log_alpha, masses, gram):
        """log_alpha [K] with its masses [K] and Gram matrix [K, K] -> the next log_alpha [K] to try."""
        gradient = self._weights - masses
        if self._base is None:
            return self._leave(log_alpha, gradient, gram)
        base_alpha, base_gradient, _ = self._base
        slope_before, slope = base_gradient @ self._step, gradient @ self._step
        if slope >= 0 or np.abs(gradient).sum() < np.abs(base_gradient).sum():
            if not self._shortened:
                self._damping = max(self._damping / 4, 1e-8)
            return self._leave(log_alpha, gradient, gram)
        if self._shortened:
            return self._leave(*self._base)
        self._damping = min(self._damping * 10, 1e12)
        self._shortened = True
        return base_alpha + np.clip(slope_before / (slope_before - slope), 0.05, 0.5) * self._step

    def _leave(self, log_alpha, gradient, gram):
        """Take this point, and return the full step away from it."""
        self._base, self._shortened = (log_alpha, gradient, gram), False
        w = self._weights
        # Row sums of the Gram matrix, not the masses, on the diagonal: a Laplacian stays positive through rounding.
        hessian = np.diag(gram.sum(1)) - gram
        hessian += np.diag(max(self._damping * np.abs(gradient).sum(), 1e-14) * w) + np.outer(w, w)
        self._step = np.linalg.solve(hessian, gradient)
        return log_alpha + self._step
