"""The clusters of all heads as rows for a file and as tables for a person.

A row is a head, a sum of all heads (head "mean", "std" or "best"), or two heads (head and other_head, with their NMI).
"""

import numpy as np

from . import clustering
from .report import Table

COLUMNS = {"nmi": "NMI", "ami": "AMI", "ari": "ARI", "accuracy": "ACC", "purity": "purity", "entropy": "entropy"}
SIZES = ("clusters", "smallest", "largest", "empty")
TITLES = {"labels": "Labels of the training images", "assigned": "Predictions for unseen images"}


def measure(labelling, images, labels, classes, num_clusters, on_head=None) -> list[dict]:
    """The rows of one labelling.

    Args:
        labelling: "labels", those found in training, or "assigned", those that the heads predict.
        images: the name of the images.
        labels: [N, H]; head h in 0..num_clusters[h]-1.
        classes: true classes [N], or None: then there are sizes and NMI between heads only.
        num_clusters: K_h of each head.
        on_head: called with the number of heads done so far, for progress bars.
    """
    labels = np.asarray(labels)
    if labels.ndim != 2 or labels.shape[1] != len(num_clusters):
        raise ValueError(f"labels have shape {labels.shape}, expected [N, {len(num_clusters)}]: one column per head.")
    common = {"labelling": labelling, "images": images, "num_examples": len(labels)}
    rows, per_head = [], []
    for head, k in enumerate(num_clusters):
        sizes = clustering.cluster_sizes(labels[:, head], k)
        counted = (k, int(sizes.min()), int(sizes.max()), int(np.sum(sizes == 0)))
        row = {**common, "head": str(head), **dict(zip(SIZES, counted, strict=True))}
        if classes is not None:
            entropies = clustering.class_entropies(labels[:, head], classes, k)
            per_head.append(clustering.scores(labels[:, head], classes))
            row |= {
                "num_classes": len(np.unique(classes)),
                **per_head[-1],
                "lowest_entropy": float(np.nanmin(entropies)),
                "highest_entropy": float(np.nanmax(entropies)),
            }
        rows.append(row)
        if on_head is not None:
            on_head(head + 1)
    if per_head:
        rows += [{**common, "head": name, **values} for name, values in clustering.over_heads(per_head).items()]
    between = clustering.nmi_between_heads(labels)
    for head, other in zip(*np.triu_indices(len(num_clusters), k=1), strict=True):
        rows.append({**common, "head": str(head), "other_head": str(other), "nmi": float(between[head, other])})
    return rows


def tables(rows) -> tuple[Table, ...]:
    """The tables of the rows of one labelling: the heads, and where there are several, NMI between them."""
    heads = [row for row in rows if "other_head" not in row]
    between = {(row["head"], row["other_head"]): row["nmi"] for row in rows if "other_head" in row}
    return (_heads_table(heads), _between_table(between)) if between else (_heads_table(heads),)


def _heads_table(rows):
    first = rows[0]
    scored = [name for name in COLUMNS if name in first]
    cells = [(row["head"], *(row.get(name) for name in (*SIZES, *scored))) for row in rows]
    classes = f"{first['num_classes']} true classes" if scored else "no true classes to measure against"
    title = f"{TITLES[first['labelling']]}: {first['images']}, {first['num_examples']} images, {classes}"
    return Table(title, ("head", *SIZES, *(COLUMNS[name] for name in scored)), tuple(cells))


def _between_table(between):
    heads = list(dict.fromkeys(head for pair in between for head in pair))
    cells = [(one, *(between.get((one, other), between.get((other, one))) for other in heads)) for one in heads]
    mean, (one, other) = np.mean(list(between.values())), max(between, key=between.get)
    note = f"Mean {mean:.3f}; most alike are heads {one} and {other}, {between[one, other]:.3f}."
    return Table("NMI between heads", ("head", *heads), tuple(cells), note)
