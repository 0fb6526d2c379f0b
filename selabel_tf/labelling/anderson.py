"""Anderson acceleration of Sinkhorn's update of the K log-scalings, safeguarded by restarts.

Sinkhorn's update is a fixed-point iteration  a <- a + r(a),  r = log w - log m  (m: column masses). Anderson keeps
the last few (a, r), finds the combination of them whose residual is smallest in least squares, and steps from
there: on K numbers, so it costs nothing beside a reading of the scores. It may overshoot; when the marginal error
has more than doubled the memory is dropped and the plain update, which always ascends, goes on from the best point.
"""

import numpy as np

MEMORY = 8
SMALLEST_MASS = 1e-30  # an underflowed mass moves its scaling by 60 or so, not by infinity


class Anderson:
    """Proposes the next log-scalings [K] from the column masses [K] of the last."""

    needs_gram = False

    def __init__(self, weights):
        self._weights = weights
        self.restart()

    def restart(self):
        """Forget everything: the map to iterate is another one now."""
        self._points, self._residuals = [], []
        self._best = None  # (error, log_alpha, residual) of the best point since the last restart

    def propose(self, log_alpha, masses, gram=None):
        """log_alpha [K] with its masses [K] -> the next log_alpha [K] to try."""
        residual = np.log(self._weights) - np.log(np.maximum(masses, SMALLEST_MASS))
        error = np.abs(self._weights - masses).sum()
        if self._best is not None and error > 2 * self._best[0]:
            _, best_alpha, best_residual = self._best
            self.restart()
            return best_alpha + best_residual
        if self._best is None or error < self._best[0]:
            self._best = (error, log_alpha, residual)
        self._points = [*self._points[1 - MEMORY :], log_alpha]
        self._residuals = [*self._residuals[1 - MEMORY :], residual]
        if len(self._points) == 1:
            return log_alpha + residual
        moves, changes = np.diff(self._points, axis=0), np.diff(self._residuals, axis=0)  # [m, K]
        mixture = np.linalg.lstsq(changes.T, residual, rcond=1e-10)[0]
        return log_alpha + residual - mixture @ (moves + changes)
