"""Labels from K-means on the features, in place of the transport plan: the DeepCluster-like baseline.

    w_i = L^(-1/2) V' (z_i - mean z)        principal components, whitened: V, L leading eigenpairs of the covariance
    u_i = w_i / |w_i|
    label_i = argmin_k |u_i - c_k|,  the centres c by scikit-learn's MiniBatchKMeans

K-means knows nothing of cluster sizes. A centre that no example chose takes half of the largest cluster, so that every
label is in use. Its numbers are arbitrary: label k of one pass has nothing to do with label k of the next.
"""

import numpy as np
import threadpoolctl
from sklearn.cluster import MiniBatchKMeans

COMPONENTS = 64
NEGLIGIBLE = 1e-10  # variance, as a share of the largest, below which a direction is rounding error
ROWS_PER_BLOCK = 8192
BATCH_SIZE = 1024  # at least; a batch should also show every cluster a few times


def whitened(features, components=COMPONENTS):
    """Features [N, D] -> float32 [N, d], rows of length 1; d is `components`, or as many directions as there are."""
    mean = np.mean(features, axis=0, dtype=np.float64)
    blocks = [slice(start, start + ROWS_PER_BLOCK) for start in range(0, len(features), ROWS_PER_BLOCK)]
    covariance = sum(_outer(features[block] - mean) for block in blocks) / len(features)
    if not np.isfinite(covariance).all():
        raise ValueError("The features hold NaN or infinite values: K-means cannot label them. Has training diverged?")
    variances, directions = np.linalg.eigh(covariance)  # ascending
    variances, directions = variances[::-1][:components], directions[:, ::-1][:, :components]
    used = max(1, np.count_nonzero(variances > NEGLIGIBLE * variances[0]))
    projection = directions[:, :used] / np.sqrt(np.where(variances > 0, variances, np.inf)[:used])  # [D, d]
    rows = np.empty((len(features), used), np.float32)
    for block in blocks:
        whole = (features[block] - mean) @ projection
        lengths = np.linalg.norm(whole, axis=1, keepdims=True)
        rows[block] = whole / np.where(lengths > 0, lengths, 1)
    return rows


def cluster(rows, num_clusters, seed):
    """Labels int32 [N] in 0..num_clusters-1 for `rows` [N, d], each of them in use; the same for the same seed."""
    if num_clusters > len(rows):
        raise ValueError(f"{len(rows)} examples cannot fill {num_clusters} clusters. Use fewer clusters.")
    batch_size = max(BATCH_SIZE, 4 * num_clusters)
    kmeans = MiniBatchKMeans(num_clusters, batch_size=batch_size, n_init="auto", random_state=seed)
    with threadpoolctl.threadpool_limits(limits=1):  # sums in the same order, so the same bits, in every run
        labels = kmeans.fit(rows).predict(rows)
    return filled(rows, labels.astype(np.int32), num_clusters)


def filled(rows, labels, num_clusters):
    """`labels` [N] with no cluster empty: each empty one takes half of what is then the largest.

    The halves lie on either side of the median along the direction in which that cluster is widest.
    """
    labels = labels.copy()
    sizes = np.bincount(labels, minlength=num_clusters)
    for empty in np.flatnonzero(sizes == 0):
        largest = sizes.argmax()
        members = np.flatnonzero(labels == largest)
        centred = rows[members] - rows[members].mean(axis=0)
        widest = np.linalg.eigh(_outer(centred))[1][:, -1]
        moved = members[np.argsort(centred @ widest, kind="stable")[: len(members) // 2]]
        labels[moved] = empty
        sizes[[largest, empty]] = len(members) - len(moved), len(moved)
    return labels


def _outer(rows):
    """Sum over the rows of their outer products, [d, d] float64."""
    rows = np.asarray(rows, np.float64)
    return rows.T @ rows
