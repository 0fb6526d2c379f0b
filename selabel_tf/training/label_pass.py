"""What a label pass did, in numbers: per head for the log, as means for TensorBoard, in one line for a person."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..evaluation import clustering

COMPARED_ROWS = 10_000  # on which heads are compared with each other: ten heads are 90 comparisons at every pass


@dataclass(frozen=True)
class HeadStatistics:
    """One head after one label pass. None: what this labeller does not have, or the source has no classes for.

    `accuracy` is the paper's pseudo-label accuracy: the share of training images whose label, the one they were
    trained on until this pass, is the head's own prediction. It is measured on the views of the pass.
    """

    head: int
    clusters: int
    passes: int | None  # readings of the scores
    marginal_error: float | None
    converged: bool | None
    smallest: int  # cluster
    largest: int  # cluster
    changed: float | None  # share of labels that differ from before; None where the clusters are numbered anew
    changed_by_chance: float  # what it would be if the labels before and after had nothing to do with each other
    nmi_previous: float  # NMI to the labels before
    objective_before: float | None
    objective_after: float | None  # None also where the head begins anew
    cost: float | None  # of the transport plan
    bound: float | None  # no balanced labelling can cost less
    accuracy: float | None
    unpredicted: tuple[int, ...] | None  # clusters that the head predicts for no image
    closest_head: int | None  # the other head whose labels are most like this one's
    nmi_closest: float | None  # NMI to those
    nmi: float | None  # to the true classes, where the source has them
    entropy: float | None  # of the true classes within a cluster, in nats: mean over images,
    lowest_entropy: float | None  # of the purest cluster,
    highest_entropy: float | None  # and of the most mixed one


@dataclass(frozen=True)
class LabelPass:
    """One label pass: number of num_passes, before which training step, how long, and every head relabelled."""

    number: int
    num_passes: int
    step: int
    seconds: float
    heads: tuple[HeadStatistics, ...]

    def summary(self):
        """One line for a person."""
        heads = self.heads
        parts = [
            f"labels {self.number + 1}/{self.num_passes}",
            f"step {self.step}",
            f"{len(heads)} heads" if len(heads) > 1 else f"head {heads[0].head}",
        ]
        if heads[0].passes is not None:
            error = max(head.marginal_error for head in heads)
            parts.append(f"sinkhorn {_span([head.passes for head in heads])} passes to error {error:.0e}")
        parts.append(f"sizes {min(h.smallest for h in heads)}-{max(h.largest for h in heads)}")
        if heads[0].changed is not None:
            parts.append(f"changed {100 * self.mean('changed'):.1f}%")
        parts.append(f"NMI to last {self.mean('nmi_previous'):.3f}")
        before, after = self.mean("objective_before"), self.mean("objective_after")
        if before is not None:
            parts.append(f"E {before:.3f} -> {'new head' if after is None else f'{after:.3f}'}")
            parts.append(f"predicted {100 * self.mean('accuracy'):.1f}%")
        if heads[0].nmi is not None:
            parts.append(f"NMI to classes {self.mean('nmi'):.3f}")
        return " | ".join([*parts, f"{self.seconds:.1f} s"])

    def records(self):
        """One flat dictionary per head, for a log of JSON lines."""
        place = {"step": self.step, "label_pass": self.number, "label_passes": self.num_passes}
        for head in self.heads:
            yield {"kind": "labels", **place, **asdict(head)}

    def scalars(self):
        """Means over the heads for TensorBoard, and single heads where there are several."""
        names = ["passes", "marginal_error", "changed", "nmi_previous", "objective_before", "objective_after"]
        names += ["accuracy", "nmi_closest", "nmi"]
        values = {f"labels/{name}": self.mean(name) for name in names if self.mean(name) is not None}
        values["labels/smallest"] = min(head.smallest for head in self.heads)
        values["labels/largest"] = max(head.largest for head in self.heads)
        if self.heads[0].unpredicted is not None:
            values["labels/unpredicted"] = max(len(head.unpredicted) for head in self.heads)
        for name in ("nmi_previous", "accuracy", "nmi"):
            if len(self.heads) > 1 and self.mean(name) is not None:
                values |= {f"labels_{name}/head_{head.head}": getattr(head, name) for head in self.heads}
        return values

    def mean(self, field):
        """Over the heads; None for a field that this pass does not have."""
        values = [getattr(head, field) for head in self.heads]
        return None if None in values else sum(values) / len(values)


def statistics(records, labels, num_clusters: Sequence[int], classes) -> tuple[HeadStatistics, ...]:
    """HeadStatistics of labelling.relabel.HeadRecords.

    Args:
        labels: int [N, H], of all heads after the pass.
        num_clusters: K_h of all heads.
        classes: the true ones [N], or None.
    """
    return tuple(_of_head(record, labels, num_clusters[record.head], classes) for record in records)


def _of_head(record, labels, num_clusters, classes):
    sizes = clustering.cluster_sizes(record.labels_after, num_clusters)
    sizes_before = clustering.cluster_sizes(record.labels_before, num_clusters)
    accuracy, unpredicted = _predicted(record, num_clusters)
    closest_head, nmi_closest = _closest(record.head, labels, num_clusters)
    entropies = _entropies(record.labels_after, classes, num_clusters)
    solution = record.solution
    return HeadStatistics(
        head=record.head,
        clusters=num_clusters,
        passes=None if solution is None else int(solution.num_passes),
        marginal_error=None if solution is None else float(solution.marginal_error),
        converged=None if solution is None else bool(solution.converged),
        smallest=int(sizes.min()),
        largest=int(sizes.max()),
        changed=None if record.renumbered else clustering.share_changed(record.labels_before, record.labels_after),
        changed_by_chance=1 - float(sizes_before @ sizes) / len(labels) ** 2,
        nmi_previous=clustering.nmi(record.labels_before, record.labels_after),
        objective_before=record.objective_before,
        objective_after=None if record.renumbered else record.objective_after,
        cost=None if solution is None else float(solution.cost),
        bound=None if solution is None else float(solution.bound),
        accuracy=accuracy,
        unpredicted=unpredicted,
        closest_head=closest_head,
        nmi_closest=nmi_closest,
        nmi=None if classes is None else clustering.nmi(record.labels_after, classes),
        entropy=entropies[0],
        lowest_entropy=entropies[1],
        highest_entropy=entropies[2],
    )


def _predicted(record, num_clusters):
    """(accuracy, clusters never predicted) of a head; None where it was not asked."""
    if record.predictions is None:
        return None, None
    sizes = clustering.cluster_sizes(record.predictions, num_clusters)
    return float(np.mean(record.predictions == record.labels_before)), tuple(np.flatnonzero(sizes == 0).tolist())


def _entropies(labels, classes, num_clusters):
    """(mean over images, lowest, highest) entropy of the true classes in a cluster; None without classes."""
    if classes is None:
        return None, None, None
    found = clustering.class_entropies(labels, classes, num_clusters)
    return clustering.class_entropy(labels, classes), float(np.nanmin(found)), float(np.nanmax(found))


def _closest(head, labels, num_clusters):
    """(other head, NMI to it) of the one most like `head`, on evenly spread rows; (None, None) of an only head."""
    wanted = max(COMPARED_ROWS, 10 * num_clusters)  # NMI of few rows in many clusters is high by chance
    rows = labels[:: max(1, len(labels) // wanted)]
    others = [other for other in range(labels.shape[1]) if other != head]
    found = [clustering.nmi(rows[:, head], rows[:, other]) for other in others]
    best = int(np.argmax(found)) if found else None
    return (None, None) if best is None else (others[best], found[best])


def _span(numbers):
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}-{high}"
