"""How well does a labelling agree with the true classes, or with another labelling?

Three measures, none of which cares how the clusters are numbered:

    NMI = I(u; v) / mean(H(u), H(v))                    0..1, but many small clusters score high by chance
    AMI = (I - E[I]) / (mean(H(u), H(v)) - E[I])        chance has expectation 0
    ARI = the same correction applied to the share of pairs of examples that both labellings treat alike

They are scikit-learn's, and so is K-means, the yardstick a self-labelling has to be held against.
"""

import numpy as np
import threadpoolctl
from sklearn import cluster, metrics


def nmi(labels, classes) -> float:
    """Normalised mutual information of two labellings [N], arithmetic mean of the entropies."""
    return float(metrics.normalized_mutual_info_score(*_pair("classes", classes, "labels", labels)))


def ami(labels, classes) -> float:
    """Adjusted mutual information of two labellings [N], arithmetic mean of the entropies."""
    return float(metrics.adjusted_mutual_info_score(*_pair("classes", classes, "labels", labels)))


def ari(labels, classes) -> float:
    """Adjusted Rand index of two labellings [N]."""
    return float(metrics.adjusted_rand_score(*_pair("classes", classes, "labels", labels)))


def scores(labels, classes) -> dict[str, float]:
    """All three measures of `labels` [N] against `classes` [N]."""
    return {"nmi": nmi(labels, classes), "ami": ami(labels, classes), "ari": ari(labels, classes)}


def cluster_sizes(labels, num_clusters) -> np.ndarray:
    """Number of examples in each cluster, [num_clusters] int64, from `labels` [N] in 0..num_clusters-1."""
    labels = _labelling("labels", labels)
    if labels.min() < 0 or labels.max() >= num_clusters:
        raise ValueError(
            f"labels run from {labels.min()} to {labels.max()}, expected 0 to {num_clusters - 1} "
            f"for num_clusters={num_clusters}."
        )
    return np.bincount(labels, minlength=num_clusters)


def share_changed(old, new) -> float:
    """Share of examples whose label differs between `old` [N] and `new` [N]."""
    old, new = _pair("old", old, "new", new)
    return float(np.mean(old != new))


def kmeans_labels(features, k, seed=0, *, num_starts=10) -> np.ndarray:
    """Labels [N] int32 of K-means with `k` clusters on `features` [N, D]: the best of `num_starts` starts."""
    features = np.asarray(features)
    if features.ndim != 2:
        raise ValueError(f"features have shape {features.shape}, expected [N, D]. Flatten images first.")
    if not 1 <= k <= len(features):
        raise ValueError(f"k={k} clusters of {len(features)} examples. Choose k from 1 to {len(features)}.")
    if num_starts < 1:
        raise ValueError(f"num_starts={num_starts} must be at least 1.")
    if not np.isfinite(features).all():
        raise ValueError("features hold NaN or infinite values. Has the network diverged?")
    kmeans = cluster.KMeans(n_clusters=k, n_init=num_starts, random_state=seed)
    # Threads add their partial sums in the order they finish: with one, the same seed gives the same bits.
    with threadpoolctl.threadpool_limits(limits=1):
        return kmeans.fit(features).labels_.astype(np.int32)


def _pair(first_name, first, second_name, second):
    first, second = _labelling(first_name, first), _labelling(second_name, second)
    if len(first) != len(second):
        raise ValueError(
            f"{first_name} has {len(first)} entries and {second_name} has {len(second)}. "
            "Both must label the same examples, in the same order."
        )
    return first, second


def _labelling(name, values):
    values = np.asarray(values)
    if values.ndim != 1 or len(values) == 0 or values.dtype.kind not in "iu":
        raise ValueError(
            f"{name} has shape {values.shape} and type {values.dtype}, expected [N] integers, N at least 1. "
            "Of several heads take one column."
        )
    return values
