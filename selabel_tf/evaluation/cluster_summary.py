"""Every cluster of a head in a few numbers: how large, how pure, how sure, and which clusters are like it.

purity_k     = max_c n_kc / a_k          share of the most common true class
entropy_k    = -sum_c n_kc/a_k log(n_kc/a_k)                                          in nats
confidence_k = mean over its images of p(k | image), without augmentation
nearest_k    = clusters by cosine similarity of the mean features
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from . import clustering, neighbours

NEAREST = 6


@dataclass(frozen=True)
class ClusterSummary:
    """Of the K clusters of one head; what could not be measured is None, of an empty cluster NaN or -1."""

    sizes: np.ndarray  # [K] int64
    common: np.ndarray | None  # [K] the most common class, the smallest of equals
    purity: np.ndarray | None  # [K]
    entropy: np.ndarray | None  # [K]
    confidence: np.ndarray | None = None  # [K]
    nearest: np.ndarray | None = None  # [K, at most NEAREST] clusters, nearest first


def summarise(labels, num_clusters, classes=None) -> ClusterSummary:
    """Of `labels` [N] in 0..num_clusters-1, against true `classes` [N] if there are any."""
    sizes = clustering.cluster_sizes(labels, num_clusters)
    if classes is None:
        return ClusterSummary(sizes, None, None, None)
    names, columns = np.unique(classes, return_inverse=True)
    counts = sparse.coo_matrix((np.ones(len(columns), np.int64), (labels, columns)), (num_clusters, len(names))).tocsr()
    common = np.asarray(counts.argmax(axis=1)).ravel()
    most = counts.max(axis=1).toarray().ravel()
    with np.errstate(invalid="ignore"):
        purity = np.where(sizes > 0, most / sizes, np.nan)
    entropy = clustering.class_entropies(labels, classes, num_clusters)
    return ClusterSummary(sizes, np.where(sizes > 0, names[common], -1), purity, entropy)


def cluster_means(rows, labels, num_clusters) -> np.ndarray:
    """Mean of `rows` [n, D] (or [n]) over each cluster of `labels` [n]: [num_clusters, D]; NaN for an empty one."""
    rows = np.asarray(rows, np.float64).reshape(len(labels), -1)
    members = sparse.coo_matrix((np.ones(len(labels)), (labels, np.arange(len(labels)))), (num_clusters, len(labels)))
    sizes = np.bincount(labels, minlength=num_clusters)[:, None]
    with np.errstate(invalid="ignore"):
        return np.where(sizes > 0, (members.tocsr() @ rows) / sizes, np.nan)


def nearest_clusters(features, labels, num_clusters) -> np.ndarray:
    """The clusters most like each one, by the mean features [n, D] of its images: [num_clusters, m], -1 for none."""
    means = cluster_means(features, labels, num_clusters)
    filled = np.flatnonzero(np.isfinite(means).all(axis=1))
    found = np.full((num_clusters, min(NEAREST, num_clusters - 1)), -1)
    count = min(NEAREST, len(filled) - 1)
    if count > 0:
        found[filled, :count] = filled[neighbours.nearest_others(means[filled].astype(np.float32), count).rows]
    return found
