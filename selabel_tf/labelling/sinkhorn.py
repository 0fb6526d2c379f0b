"""Optimal transport labels: the K log-scalings that give every cluster its wanted share.

For log-probabilities log p [N, K], weights w [K] (uniform unless told) and lambda, the plan

    Q_ik = softmax_k(lambda log p_ik + a_k) / N         rows sum to 1/N by construction
    sum_i Q_ik = w_k                                    the equation for a = log_alpha

The equation says that the gradient of a concave function of K numbers is zero, so only K-vectors travel between
readings of the scores. Up to `NEWTON_CLUSTERS` clusters a reading brings the Hessian too, and Newton's method needs
few; above, Anderson acceleration of Sinkhorn's update, on a kernel (`kernel`) that is read at the speed of memory:
exact readings of the scores make it, make it anew when the scalings have gone far, and have the last word where it is
not as exact as they are (half precision).

With f = a / lambda, M_i = max_k(lambda log p_ik + a_k), x_ik = lambda log p_ik + a_k - M_i, S = N Q and m its column
means, every exact reading, and a last one of the kernel, has the certificate:

    bound = mean_i min_k(-log p_ik - f_k) + w . f      = (w . a - mean_i M_i) / lambda
    cost  = mean_i sum_k S_ik (-log p_ik)              = (m . a - mean_i (M_i + sum_k S_ik x_ik)) / lambda

Near the solution at sharp lambda most of the kernel is not needed either: `thinning` has Newton's Hessian from its
few large entries. Where Anderson is slow, which very sharp problems are, Newton takes over if N K^2 is not too large.

A cold start first solves the problem of a few rows of the many, drawn evenly, to the accuracy such a sample has: all
that a far start needs is then done on the sample, for a small part of the cost.

A far start is led in from small lambda, where the problem is smooth, by factors of four with a / lambda kept:
confident networks at lambda 25 and above make the function all but piecewise linear, and every method creeps there.
"""

from dataclasses import dataclass

import numpy as np

from selabel_tf.labelling.anderson import Anderson
from selabel_tf.labelling.kernel import Kernel
from selabel_tf.labelling.newton import Newton
from selabel_tf.labelling.reading import Reader
from selabel_tf.labelling.scores import RowBlocks, checked_lambda, checked_log_alpha, wanted_weights
from selabel_tf.labelling.thinning import ROWS_PER_SQUARE, Thinned

NEWTON_CLUSTERS = 256  # the Hessian costs 2 N K^2 operations: above this, more readings without it are faster
SLOW_PASSES = 150  # and half as many as there are clusters (a Hessian costs ever more passes): then Newton takes over
HESSIAN_OPERATIONS = 1e11  # all the same, if N K^2 is at most this, some seconds a reading on two cores
FAR = 1.0  # marginal error (at most 2) above which a start is led in from small lambda
DEAD = 1e-6  # as is one that leaves a cluster with less than this part of its wanted mass
STAGE_ERROR = 0.1  # marginal error that suffices on the way in
STAGE_FACTOR = 4.0
THIN_ERROR = 0.6  # marginal error from which on a thin plan can stand for the whole
THIN_AGAIN = 0.3  # after a failure: when the error is this part of what it was
FINE_TOLERANCE = 1e-5  # below this float32 sums may never get there: float64 throughout, and no kernel
SAMPLE_PER_CLUSTER = 8  # rows of the sample for each cluster,
SAMPLE_ENTRIES = 2**27  # of no more entries than this (it has a kernel as well: 1 GiB together);
SAMPLE_SHARE = 1 / 4  # with more of the rows than this there is nothing to be won
SAMPLE_ERROR = 0.05
MARGIN = 0.95  # part of the tolerance that a kernel should reach before its scores are asked


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
    num_passes: how often the N x K scores were read, everything included; readings of a sample by their rows.
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
    on_pass: called with a PassRecord after each reading of all rows.
    """
    lambda_ = checked_lambda(lambda_)
    if not 0 < tolerance < np.inf:
        raise ValueError(f"tolerance={tolerance}; expected a positive number, e.g. 1e-4.")
    if max_passes < 1:
        raise ValueError(f"max_passes={max_passes}; at least one reading of the scores is needed.")
    blocks = RowBlocks(log_p)
    num_clusters = blocks.num_clusters
    weights = wanted_weights(cluster_weights, num_clusters)
    start = None if log_alpha is None else checked_log_alpha(log_alpha, num_clusters)
    fine = tolerance < FINE_TOLERANCE
    if num_clusters <= NEWTON_CLUSTERS:
        method, kernel = Newton(weights), None
    else:
        method, kernel = Anderson(weights), None if fine else Kernel(*blocks.kernel_form)
    reader = Reader(blocks, with_gram=method.needs_gram, wide=fine, kernel=kernel)
    try:
        best = _search(reader, method, start, lambda_, weights, tolerance, max_passes, on_pass)
    finally:
        if kernel is not None:
            kernel.close()
    return SinkhornResult(
        log_alpha=best.log_alpha,
        marginal_error=best.error(weights),
        num_passes=reader.num_passes,
        converged=best.error(weights) <= tolerance,
        cost=best.cost(),
        bound=best.bound(weights),
    )


def _search(reader, method, start, lambda_, weights, tolerance, max_passes, on_pass):
    """The exact reading at lambda_ with the least marginal error, the first within tolerance if there is one."""

    def told(reading):
        if on_pass is not None:
            on_pass(PassRecord(reader.num_passes, reading.lambda_, reading.error(weights)))
        return reading

    def read(at_lambda, at_log_alpha):
        return told(reader.read(at_lambda, at_log_alpha - weights @ at_log_alpha))

    def start_afresh(smooth):
        """Where a cluster is nobody's best choice, lift it until it is somebody's equal best: no mass underflows."""
        at_lambda = min(lambda_, STAGE_FACTOR / max(reader.survey.spread, 1e-30)) if smooth else lambda_
        return read(at_lambda, -at_lambda * reader.survey.column_gaps)

    def is_far(reading):
        return reading.error(weights) > FAR or (reading.masses < DEAD * weights).any()

    if start is None:
        start = _sampled_start(reader, lambda_, weights, max_passes)
    best = hopeful = reading = read(lambda_, start)  # hopeful: as best, but maybe of the kernel only
    fresh_starts = [False, True]  # tried in this order while the reading is far: smooth or not
    thin = reader.has_kernel and reader.num_rows >= ROWS_PER_SQUARE * len(weights) ** 2
    thin_below = THIN_ERROR if thin else 0.0  # the marginal error from which on it is tried (again)
    while best.error(weights) > tolerance and reader.num_passes < max_passes:
        slow = reader.num_passes >= SLOW_PASSES + len(weights) / 2
        if not method.needs_gram and slow and reader.gram_operations <= HESSIAN_OPERATIONS:
            method, thin_below = Newton(weights), 0.0
            reader.read_with_gram()
            stuck = reading.error(weights) > STAGE_ERROR
            reading = start_afresh(smooth=True) if stuck else read(reading.lambda_, reading.log_alpha)
            hopeful = best = min(best, reading, key=lambda one: one.error(weights) if one.lambda_ == lambda_ else 3.0)
            continue
        last = reader.num_passes == max_passes - 1  # spent at the lambda asked for, whatever the way in has reached
        if not hopeful.exact and (last or hopeful.error(weights) <= MARGIN * tolerance):
            hopeful = reading = told(reader.confirm(hopeful))
            method.restart()
        elif fresh_starts and is_far(reading):
            smooth = fresh_starts.pop(0)
            if smooth or start.any() or reader.survey.column_gaps.any():  # else that is where we are
                reading = start_afresh(smooth and not last)
        elif reading.lambda_ < lambda_ and (last or reading.error(weights) < STAGE_ERROR):
            sharper = lambda_ if last else min(lambda_, STAGE_FACTOR * reading.lambda_)
            method.restart()
            reading = read(sharper, reading.log_alpha * (sharper / reading.lambda_))
        else:
            fresh_starts.clear()
            outdated = isinstance(method, Thinned) and method.is_outdated(reading.error(weights))
            if reading.lambda_ == lambda_ and (outdated or reading.error(weights) < thin_below) and not last:
                thin_below = 0.0
                method = reader.thinned(reading, weights, tolerance) or method
                told(reading)
            proposal = method.propose(reading.log_alpha, reading.masses, reading.gram)
            if isinstance(method, Thinned) and method.lost:
                method, thin_below = Anderson(weights), THIN_AGAIN * hopeful.error(weights)
                proposal = method.propose(hopeful.log_alpha, hopeful.masses)
            reading = read(reading.lambda_, proposal)
        if reading.lambda_ == lambda_:
            hopeful = min(hopeful, reading, key=lambda one: one.error(weights))
            if reading.exact:
                best = min(best, reading, key=lambda one: one.error(weights))
    return best


def _sampled_start(reader, lambda_, weights, max_passes):
    """log_alpha [K] of a sample of the rows, where a sample can be had and is small beside them; else zeros."""
    num_clusters = len(weights)
    rows = min(SAMPLE_PER_CLUSTER * num_clusters, max(SAMPLE_ENTRIES // num_clusters, 2 * num_clusters))
    if not reader.has_kernel or reader.num_rows is None or rows > SAMPLE_SHARE * reader.num_rows:
        return np.zeros(num_clusters)
    sample = reader.sample(rows)
    rows = sum(len(block) for block in sample)
    bad = any(not np.isfinite(block).all() for block in sample)  # to be refused by their rows
    if max_passes < 4 or rows < num_clusters or bad:
        return np.zeros(num_clusters)
    allowed = int(max_passes / 4 * reader.num_rows / rows)
    result = solve(sample, lambda_=lambda_, cluster_weights=weights, tolerance=SAMPLE_ERROR, max_passes=allowed)
    reader.num_passes += -(-result.num_passes * rows // reader.num_rows)
    return result.log_alpha
