"""The figures of the SeLa paper, to be set beside ours and never in their place.

    figures(table="6", row="SL", metric="knn cifar10")  ->  (Figure("6", "SL", "knn cifar10", 77.6),)
    figures(table="9")                                   ->  all of that table

paper.json holds them as printed, in percent: the tables, row by row, with SeLa's variants and their main baselines.
It also holds the paper's experiments: in which setting (training images, images judged on, backbone, clusters,
labeller, imbalance) a row was measured, and which of our measures its figures are. A figure stands beside a run of
ours only if every word of that setting is the run's own; see `beside`. All other figures for the same images are
`references`: the paper's, in another setting.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("paper.json")


@dataclass(frozen=True)
class Figure:
    """One printed number, in percent."""

    table: str
    row: str
    metric: str
    value: float


@dataclass(frozen=True)
class Setting:
    """What an experiment was, in the words of our configs. num_clusters: "128x10", or "5,7" for unequal heads."""

    dataset: str
    judged: str  # the images that features are judged on, most often those of `dataset`
    backbone: str
    num_clusters: str
    labeller: str = "sinkhorn"
    imbalance: str = "none"
    num_relabels: int = 80
    examples: str = "all"  # of the training images; the paper never trains on a part of a set
    objectives: str = "labels"
    more: str = "none"  # augmentation on top of the usual one


@dataclass(frozen=True)
class Experiment:
    """One of the paper's. epochs: None where the paper does not say. figures: by our measure, e.g. "knn"."""

    method: str
    setting: dict
    epochs: int | None
    figures: dict[str, Figure]

    def is_that_of(self, setting: Setting) -> bool:
        """Whether `setting` is this experiment's. One that does not speak of label optimisations has had some."""
        relabelled = setting.num_relabels > 0 or setting.labeller not in ("sinkhorn", "kmeans")
        usual = {"objectives": Setting.objectives, "more": Setting.more}
        same = all(getattr(setting, name) == value for name, value in {**usual, **self.setting}.items())
        return same and setting.examples == "all" and (relabelled or "num_relabels" in self.setting)


def figures(table=None, row=None, metric=None) -> tuple[Figure, ...]:
    """All figures of the table, row and metric given, in the paper's order; what the paper leaves out is left out."""
    found = _figures()
    for name, wanted in (("table", table), ("row", row), ("metric", metric)):
        known = list(dict.fromkeys(getattr(figure, name) for figure in found))
        if wanted is not None and wanted not in known:
            raise ValueError(f"The paper has no {name} {wanted!r} here. It has: {'; '.join(known)}.")
        found = tuple(figure for figure in found if wanted in (None, getattr(figure, name)))
    return found


def titles() -> dict[str, str]:
    """Number of each table -> what it shows."""
    shown = {}
    for block in _read()["tables"]:
        shown.setdefault(block["table"], []).append(block["title"])
    return {table: "; ".join(parts) for table, parts in shown.items()}


def beside(setting: Setting) -> Experiment | None:
    """The paper's experiment in exactly this setting, or None."""
    return next((experiment for experiment in experiments() if experiment.is_that_of(setting)), None)


def references(setting: Setting) -> tuple[Experiment, ...]:
    """The paper's experiments with the same images, imbalance aside; with the same backbone if there are any."""
    names = ("dataset", "judged")
    same = [e for e in experiments() if all(e.setting[name] == getattr(setting, name) for name in names)]
    closer = tuple(e for e in same if e.setting["backbone"] == setting.backbone)
    return tuple(
        e for e in closer or same if e.setting["imbalance"] in ("none", setting.imbalance) and e != beside(setting)
    )


@functools.cache
def experiments() -> tuple[Experiment, ...]:
    made = []
    for entry in _read()["experiments"]:
        numbers = {measure: figures(*where)[0] for measure, where in entry["figures"].items()}
        made.append(Experiment(entry["method"], entry["setting"], entry["epochs"], numbers))
    return tuple(made)


@functools.cache
def _figures():
    return tuple(
        Figure(block["table"], row, metric, value)
        for block in _read()["tables"]
        for row, values in block["rows"].items()
        for metric, value in zip(block["metrics"], values, strict=True)
        if value is not None
    )


@functools.cache
def _read():
    return json.loads(FILE.read_text("utf-8"))
