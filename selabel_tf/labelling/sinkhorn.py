"""Optimal transport labels: the K log-scalings that give every cluster its wanted share.

For log-probabilities log p [N, K], weights w [K] (uniform unless told) and lambda, the plan

    Q_ik = softmax_k(lambda log p_ik + a_k) / N         rows sum to 1/N by construction
    sum_i Q_ik = w_k                                    the equation for a = log_alpha

The equation says that the gradient of a concave function of K numbers is zero, so only K-vectors travel between
readings of the scores. Up to `NEWTON_CLUSTERS` clusters a reading brings the Hessian too, and Newton's method needs
few; above, Anderson acceleration of Sinkhorn's update. With f = a / lambda, M_i = max_k(lambda log p_ik + a_k),
x_ik = lambda log p_ik + a_k - M_i, S = N Q and m its column means, every reading also has the certificate:

    bound = mean_i min_k(-log p_ik - f_k) + w . f      = (w . a - mean_i M_i) / lambda
    cost  = mean_i sum_k S_ik (-log p_ik)              = (m . a - mean_i (M_i + sum_k S_ik x_ik)) / lambda

A far start is led in from small lambda, where the problem is smooth, by factors of four with a / lambda kept:
confident networks at lambda 25 and above make the function all but piecewise linear, and every method creeps there.
"""

from dataclasses import dataclass

import numpy as np

from selabel_tf.labelling.anderson import Anderson
from selabel_tf.labelling.newton import Newton
from selabel_tf.labelling.reading import Reader
from selabel_tf.labelling.scores import RowBlocks, checked_lambda, checked_log_alpha, wanted_weights

NEWTON_CLUSTERS = 256  # the Hessian costs 2 N K^2 operations: above this, more readings without it are faster
FAR = 1.0  # marginal error (at most 2) above which a start is led in from small lambda
DEAD = 1e-6  # as is one that leaves a cluster with less than this part of its wanted mass
STAGE_ERROR = 0.1  # marginal error that suffices on the way in
STAGE_FACTOR = 4.0
FINE_TOLERANCE = 1e-5  # below this float32 sums may never get there: float64 throughout


@dataclass(frozen=True)
class PassRecord:
    """One reading of the scores: its number from 1, the lambda it was made at, the marginal error found there."""

    number: int
    lambda_: float
    marginal_error: float


@dataclass(frozen=True)
class SinkhornResult:
    """The log-scalings and how good they are.

    log_alpha: float64 [K], centred: sum_k w_k log_alpha_k = 0.
    marginal_error: L1 distance between the cluster masses of the plan and the wanted ones.
    num_passes: how often the N x K scores were read, everything included.
    converged: marginal_error <= tolerance.
    cost: mean over the examples of the plan's expected -log p (below the optimum by no more than the marginal
        error allows).
    bound: no assignment with the wanted masses costs less.
    """

    log_alpha: np.ndarray
    marginal_error: float
    num_passes: int
    converged: bool
    cost: float
    bound: float


def solve(
    log_p,
    *,
    lambda_=25.0,
    cluster_weights=None,
    log_alpha=None,
    tolerance=1e-4,
    max_passes=1000,
    on_pass=None,
) -> SinkhornResult:
    """Find the log-scalings of the plan with the wanted cluster masses.

    log_p: [N, K] array or tensor (rows need not be normalised), or a re-iterable of row blocks [n_b, K]. Finite:
        clip log(0) to a large negative number.
    cluster_weights: positive [K], the wanted shares up to a factor; None means uniform.
    log_alpha: [K], where to start: the result for an earlier state of the network. A poor one is noticed and left.
    tolerance: the L1 marginal error to reach. max_passes: readings of the scores after which to give up.
    on_pass: called with a PassRecord after each reading.
    """
    lambda_ = checked_lambda(lambda_)
    if not 0 < tolerance < np.inf:
        raise ValueError(f"tolerance={tolerance}; expected a positive number, e.g. 1e-4.")
    if max_passes < 1:
        raise ValueError(f"max_passes={max_passes}; at least one reading of the scores is needed.")
    blocks = RowBlocks(log_p)
    num_clusters = blocks.num_clusters
    weights = wanted_weights(cluster_weights, num_clusters)
    start = np.zeros(num_clusters) if log_alpha is None else checked_log_alpha(log_alpha, num_clusters)
    method = Newton(weights) if num_clusters <= NEWTON_CLUSTERS else Anderson(weights)
    reader = Reader(blocks, with_gram=method.needs_gram, wide=tolerance < FINE_TOLERANCE)

    def read(at_lambda, at_log_alpha):
        reading = reader.read(at_lambda, at_log_alpha - weights @ at_log_alpha)
        if on_pass is not None:
            on_pass(PassRecord(reader.num_passes, at_lambda, reading.error(weights)))
        return reading

    def is_far(reading):
        return reading.error(weights) > FAR or (reading.masses < DEAD * weights).any()

    best = reading = read(lambda_, start)
    # Where a cluster is nobody's best choice, lift it until it is somebody's equal best: no mass underflows.
    lifted = -reader.survey.column_gaps
    fresh_starts = [lambda_, min(lambda_, STAGE_FACTOR / max(reader.survey.spread, 1e-30))]
    if np.array_equal(start, lambda_ * lifted):
        del fresh_starts[0]
    while best.error(weights) > tolerance and reader.num_passes < max_passes:
        last = reader.num_passes == max_passes - 1  # spent at the lambda asked for, whatever the way in has reached
        if fresh_starts and is_far(reading):
            smoother = lambda_ if last else fresh_starts.pop(0)
            reading = read(smoother, smoother * lifted)
        elif reading.lambda_ < lambda_ and (last or reading.error(weights) < STAGE_ERROR):
            sharper = lambda_ if last else min(lambda_, STAGE_FACTOR * reading.lambda_)
            method.restart()
            reading = read(sharper, reading.log_alpha * (sharper / reading.lambda_))
        else:
            fresh_starts.clear()
            reading = read(reading.lambda_, method.propose(reading.log_alpha, reading.masses, reading.gram))
        if reading.lambda_ == lambda_ and reading.error(weights) < best.error(weights):
            best = reading
    return SinkhornResult(
        log_alpha=best.log_alpha,
        marginal_error=best.error(weights),
        num_passes=reader.num_passes,
        converged=best.error(weights) <= tolerance,
        cost=best.cost(),
        bound=best.bound(weights),
    )
