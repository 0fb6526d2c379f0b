"""Accuracy of scores: how often is the true class among the k that score highest?"""

import numpy as np


def top_k(scores, classes, k) -> float:
    """The share of rows of `scores` [N, C] whose true class, `classes` [N], has fewer than k others before it.

    Of equal scores the class of the lower number comes first, as in tf.math.top_k.
    """
    scores, classes = np.asarray(scores), np.asarray(classes)
    if scores.ndim != 2 or classes.shape != (len(scores),) or len(scores) == 0:
        raise ValueError(f"scores {scores.shape} and classes {classes.shape}: expected [N, C] and [N], N at least 1.")
    if not np.isfinite(scores).all():
        raise ValueError("The scores hold NaN or infinity. Has the network diverged?")
    own = np.take_along_axis(scores, classes[:, None], axis=1)  # [N, 1]
    earlier = np.arange(scores.shape[1]) < classes[:, None]
    before = np.sum((scores > own) | ((scores == own) & earlier), axis=1)
    return float(np.mean(before < k))
