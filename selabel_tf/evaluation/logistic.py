"""Multinomial logistic regression, solved to the end: the linear probe without a learning rate.

    min over W [D, C], b [C] of   1/N sum_i -log softmax(x_i W + b)[y_i]  +  l2/2 |W|^2

The problem is convex: L-BFGS finds its one minimum, and the answer depends on no seed. This is scikit-learn's
LogisticRegression at C = 1 / (N * l2). Products with x run in the type of x, float32 or float64; all else is float64.
"""

from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.special import logsumexp


@dataclass(frozen=True)
class LogisticResult:
    """gradient: the largest of its components in magnitude at the answer. converged: whether it reached `tolerance`."""

    weights: np.ndarray  # [D, C]
    bias: np.ndarray  # [C]
    loss: float
    gradient: float
    num_iterations: int
    converged: bool


def solve(features, classes, num_classes, *, l2=1e-4, tolerance=1e-4, max_iterations=1000, on_iteration=None):
    """The LogisticResult of `features` [N, D] (standardise them first) and `classes` [N] in 0..num_classes-1.

    on_iteration: called with the number of iterations done, for progress bars.
    """
    features, classes = np.asarray(features), np.asarray(classes)
    if not l2 > 0:
        raise ValueError(f"l2={l2} must be positive: without it separable classes have no finite answer.")
    if features.dtype not in (np.float32, np.float64):
        raise ValueError(f"features are {features.dtype}, expected float32 or float64. Cast them first.")
    if features.ndim != 2 or classes.shape != (len(features),):
        raise ValueError(f"features {features.shape} and classes {classes.shape}: expected [N, D] and [N].")
    if len(classes) == 0 or classes.min() < 0 or classes.max() >= num_classes:
        raise ValueError(f"classes must lie in 0..{num_classes - 1}, one for each row.")
    count, dimension = features.shape
    rows = np.arange(count)

    def objective(flat):
        weights, bias = _unpacked(flat, dimension, num_classes)
        logits = (features @ weights.astype(features.dtype)).astype(np.float64) + bias  # [N, C]
        normaliser = logsumexp(logits, axis=1)  # [N]
        loss = np.mean(normaliser - logits[rows, classes]) + 0.5 * l2 * np.sum(weights**2)
        residual = np.exp(logits - normaliser[:, None])  # p - onehot(y), in place
        residual[rows, classes] -= 1.0
        residual /= count
        gradient = (features.T @ residual.astype(features.dtype)).astype(np.float64) + l2 * weights  # [D, C]
        return loss, np.concatenate([gradient.ravel(), residual.sum(axis=0)])

    done = 0

    def tell(_):
        nonlocal done
        done += 1
        if on_iteration is not None:
            on_iteration(done)

    answer = optimize.minimize(
        objective,
        np.zeros((dimension + 1) * num_classes),
        jac=True,
        method="L-BFGS-B",
        callback=tell,
        options={"maxiter": max_iterations, "maxfun": 2 * max_iterations, "gtol": tolerance, "ftol": 1e-14},
    )
    weights, bias = _unpacked(answer.x, dimension, num_classes)
    gradient = float(np.abs(answer.jac).max())
    return LogisticResult(weights, bias, float(answer.fun), gradient, int(answer.nit), gradient <= tolerance)


def _unpacked(flat, dimension, num_classes):
    """(weights [D, C], bias [C]), views of one vector."""
    return flat[:-num_classes].reshape(dimension, num_classes), flat[-num_classes:]
