"""The curves of a run's log: how loss, labels and features changed over training, as numbers.

    loss, learning rate ...         one line: any number that the epoch records hold
    NMI, accuracy, share changed    a line per head, and their mean where all heads were relabelled together
    rotation accuracy               of training images and, where there are some, of held-out ones
    entropy of the true classes     of the purest, the mean and the most mixed cluster, averaged over heads

Epochs are fractions: a label pass in the middle of the first epoch stands at 0.5.
"""

import math
import numbers
from dataclasses import dataclass

import numpy as np

MEAN = "mean"
LABEL_PANELS = {  # key in the records of label passes -> title, what it means
    "nmi": (
        "NMI to the true classes",
        "What the labels tell of the classes, which training never sees: 0 nothing, 1 all.",
    ),
    "nmi_previous": ("NMI to the labels before", "How alike the labels before and after a pass are: 1 is no change."),
    "accuracy": ("Pseudo-label accuracy", "Share of training images for which a head predicts their label."),
    "changed": ("Labels changed", "Share of the training images that got another label at a pass."),
}
ENTROPY_LINES = {"lowest_entropy": "purest cluster", "entropy": "mean", "highest_entropy": "most mixed cluster"}
EPOCH_PANELS = {  # the same of epoch records; other numbers in them are shown under their own names
    "loss": (
        "Training loss",
        "Cross-entropy with the labels, mean of an epoch. A network that knows nothing has ln K.",
    ),
    "learning_rate": ("Learning rate", "At the end of each epoch."),
    "images_per_second": ("Images per second", "Of training steps; label passes are not counted."),
    "seconds": ("Seconds per epoch", "By the clock, label passes included."),
}
PAPER = ("loss", *LABEL_PANELS, "entropy", "knn")  # what the paper draws; all else comes after
PLACE = ("kind", "step", "epoch")  # keys of a record that say where it stands


@dataclass(frozen=True)
class Curve:
    """Lines over training. epochs [T]; values [T, L], NaN where a line has no point; one of `names` for each line.

    strong: the lines to be drawn strongly. reference: (name, height) of a level to compare with, or None.
    """

    key: str
    title: str
    note: str
    epochs: np.ndarray
    values: np.ndarray
    names: tuple[str, ...]
    strong: tuple[str, ...]
    reference: tuple[str, float] | None = None

    def last(self, name) -> float:
        """The last value of a line."""
        column = self.values[:, self.names.index(name)]
        return float(column[np.isfinite(column)][-1])


def from_records(records) -> tuple[Curve, ...]:
    """All curves of the records of a metrics.jsonl, those of the paper first."""
    epochs = [record for record in records if record["kind"] == "epoch"]
    passes = [record for record in records if record["kind"] == "labels"]
    neighbours = [record for record in records if record["kind"] == "knn"]
    per_epoch = next((r["step"] / r["epoch"] for r in [*epochs, *neighbours]), 1)
    scalars = _scalars(epochs, passes)
    if "rotation_accuracy" in scalars:
        scalars["rotation_accuracy"] = _rotation(epochs, [r for r in records if r["kind"] == "rotation"])
    made = [scalars.pop("loss", None)]
    made += [_by_head(passes, key, per_epoch) for key in LABEL_PANELS]
    made += [_entropy(passes, per_epoch), _neighbours(neighbours), *scalars.values()]
    return tuple(curve for curve in made if curve is not None)


def _scalars(epochs, passes):
    """key -> Curve of every number that the epoch records hold."""
    keys = dict.fromkeys(key for record in epochs for key, value in record.items() if _is_number(value))
    found = {}
    for key in keys:
        if key not in PLACE:
            points = [(r["epoch"], r[key]) for r in epochs if _is_number(r.get(key))]
            title, note = EPOCH_PANELS.get(key, (key.replace("_", " ").capitalize(), ""))
            found[key] = _one_line(key, title, note, points, uniform_loss(passes) if key == "loss" else None)
    return found


def uniform_loss(passes):
    """("ln K", the loss of a network that knows nothing), mean over heads; None without label passes."""
    clusters = {record["head"]: record["clusters"] for record in passes if record.get("clusters")}
    return ("ln K", sum(map(math.log, clusters.values())) / len(clusters)) if clusters else None


def _neighbours(records):
    if not records:
        return None
    note = "Of the true classes, by weighted nearest neighbours: k={k}, sigma={sigma}.".format(**records[-1])
    return _one_line("knn", "kNN accuracy", note, [(r["epoch"], r["accuracy"]) for r in records])


def _rotation(epochs, held_out):
    """Of training images, augmented and while the network learns, and of held-out ones."""
    lines = {"training images": (epochs, "rotation_accuracy"), "held-out images": (held_out, "accuracy")}
    found = {
        name: {r["epoch"]: r[key] for r in records if _is_number(r.get(key))} for name, (records, key) in lines.items()
    }
    found = {name: points for name, points in found.items() if points}
    places = sorted(set().union(*found.values()))
    values = np.array([[points.get(place, np.nan) for points in found.values()] for place in places], np.float64)
    names = tuple(found)
    note = "Share of quarter turns told right, each image at all four."
    reference = ("chance", 0.25)
    place = np.array(places, np.float64)
    return Curve("rotation_accuracy", "Rotation accuracy", note, place, values, names, names, reference)


def _one_line(key, title, note, points, reference=None):
    epochs, values = np.array(points, np.float64).T
    return Curve(key, title, note, epochs, values[:, None], (title,), (title,), reference)


def _by_head(passes, key, per_epoch):
    heads, steps, values = _table(passes, key)
    if not len(values):
        return None
    title, note = LABEL_PANELS[key]
    names, strong = tuple(f"head {head}" for head in heads), ()
    if len(heads) == 1:
        strong = names
    elif np.isfinite(values).all(axis=1).any():  # heads that take turns have no common mean
        whole = np.where(np.isfinite(values).all(axis=1), values.sum(axis=1) / len(heads), np.nan)
        values, names, strong = np.column_stack([values, whole]), (*names, MEAN), (MEAN,)
    return Curve(key, title, note, steps / per_epoch, values, names, strong)


def _entropy(passes, per_epoch):
    tables = {name: _table(passes, key) for key, name in ENTROPY_LINES.items()}
    if not all(len(values) for _, _, values in tables.values()):
        return None
    steps = tables[MEAN][1]
    values = np.column_stack([np.nanmean(values, axis=1) for _, _, values in tables.values()])
    note = "Within a cluster, in nats; 0 is a cluster of one class. Averaged over heads."
    names = tuple(tables)
    return Curve("entropy", "Entropy of the true classes", note, steps / per_epoch, values, names, names)


def _table(passes, key):
    """(heads, steps [T], values [T, H]) of the passes that have the number `key`."""
    found = {(r["step"], r["head"]): r[key] for r in passes if _is_number(r.get(key))}
    steps, heads = (sorted({place[axis] for place in found}) for axis in (0, 1))
    values = np.array([[found.get((step, head), np.nan) for head in heads] for step in steps], np.float64)
    return heads, np.array(steps, np.float64), values


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
