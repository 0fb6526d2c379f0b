"""Features on a plane: the two principal components, and t-SNE where there are points enough to show more.

Both see features as nearest neighbours do: rows of length 1. t-SNE keeps neighbours together and nothing else: the
distances between its groups, and their sizes, mean little. It is scikit-learn's, begun at the principal components, so
that the same features give the same picture.
"""

import numpy as np
import threadpoolctl
from sklearn import manifold

from . import pca

ENOUGH = 300  # points: with fewer, t-SNE shows no more than the components do
DIMENSIONS = 30  # t-SNE starts from


def unit_rows(features) -> np.ndarray:
    """Features [N, D] by their direction alone; rows of zeros stay."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(lengths > 0, lengths, 1)


def project(features, seed=0) -> dict[str, np.ndarray]:
    """Method -> points [N, 2] in 0..1, of `features` [N, D]; the method to be shown first comes first."""
    rows = unit_rows(np.asarray(features, np.float32))
    dims = min(DIMENSIONS, *rows.shape)
    if dims < 2:
        return {}
    components = pca.fit(rows, dims, seed=seed).transform(rows)
    found = {"PCA": _into_unit_square(components[:, :2])}
    if len(rows) >= ENOUGH:
        perplexity = min(30, (len(rows) - 1) / 3)
        start = components[:, :2] / (components[:, 0].std() or 1.0) * 1e-4
        method = manifold.TSNE(init=start.astype(np.float32), perplexity=perplexity, max_iter=600, random_state=seed)
        with threadpoolctl.threadpool_limits(limits=1):
            found = {"t-SNE": _into_unit_square(method.fit_transform(components)), **found}
    return found


def _into_unit_square(points):
    """Shifted and scaled, both axes alike, into 0..1."""
    low = points.min(axis=0)
    return (points - low) / (np.ptp(points, axis=0).max() or 1.0)
