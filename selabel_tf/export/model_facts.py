"""What model.json says beside an exported file: how images are prepared, and what the clusters are.

{"preprocessing": {...}, "feature_size": 512, "num_clusters": [20, 20], "clusters": [[{...}, ...], ...], ...}
"""

import numpy as np


def describe(model, preprocessing, more=None) -> dict:
    """The facts of a SelfLabelModel's export; `more`: further ones, plain values."""
    if tuple(preprocessing.image_shape) != tuple(model.image_shape):
        raise ValueError(
            f"The preprocessing gives images {_by(preprocessing.image_shape)}, the network takes "
            f"{_by(model.image_shape)}. Prepare images as in training."
        )
    return {
        "preprocessing": preprocessing.facts(),
        "feature_size": model.feature_size,
        "num_clusters": list(model.num_clusters),
        **(more or {}),
    }


def name_clusters(labels, num_clusters, classes=None, class_names=None) -> list[list[dict]]:
    """Per head and cluster: its size among the labels [N, H] and, with true classes [N], the most frequent one.

    Returns: clusters[head][cluster] = {"size": 90, "class": "horse", "share": 0.4}; a cluster without images has no
        class, and ties go to the smaller class.
    """
    heads = []
    for head, k in enumerate(num_clusters):
        rows = []
        for cluster in range(k):
            inside = labels[:, head] == cluster
            row = {"size": int(inside.sum())}
            if classes is not None and row["size"]:
                counts = np.bincount(classes[inside])
                most = int(counts.argmax())
                row["class"] = class_names[most] if class_names else str(most)
                row["share"] = float(counts[most] / row["size"])
            rows.append(row)
        heads.append(rows)
    return heads


def _by(shape):
    return "x".join(map(str, shape))
