"""The sections of an experiment's config: frozen, validated values.

It imports no other room, so the names of policies and backbones are checked where those are made; what can be judged
from the value alone is judged here.
"""

import dataclasses
import difflib
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass


def _option(default=dataclasses.MISSING, **rule):
    """A field and its rule: choices, at_least, above, below, at_most; in a tuple, of each element."""
    return dataclasses.field(default=default, metadata=rule)


class _Section:
    """Checks every field against its annotation and its rule, and names it `section.field` when it fails."""

    section: typing.ClassVar[str] = ""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = _checked(getattr(self, field.name), field, self._path(field.name))
            object.__setattr__(self, field.name, value)  # frozen: the way dataclasses themselves do it

    def _path(self, name):
        return f"{self.section}.{name}" if self.section else name


@dataclass(frozen=True)
class Data(_Section):
    """Which images. `examples_per_class` 0 means all of them.

    `test_split` of a TFDS set is for evaluation; without one, features are judged on the training images themselves.
    `imbalance` removes examples of some classes of the training split, as data.imbalance says. Images that cannot be
    decoded are left out, up to the share `max_bad_share` of all; more of them stop the run.
    """

    section = "data"
    source: str = _option("digits", choices=("digits", "tfds", "folder"))
    name: str = _option("")
    split: str = _option("train")
    test_split: str = _option("")
    data_dir: str = _option("")
    path: str = _option("")
    examples_per_class: int = _option(0, at_least=0)
    imbalance: str = _option("none", choices=("none", "light", "heavy"))
    max_bad_share: float = _option(0.01, at_least=0, below=1)

    def __post_init__(self):
        super().__post_init__()
        needed = {"digits": (), "tfds": ("name", "split"), "folder": ("path",)}[self.source]
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"data.{name} is empty, but data.source={self.source!r} needs it. Set data.{name}.")
        owner = {"name": "tfds", "data_dir": "tfds", "test_split": "tfds", "path": "folder"}
        for name, source in owner.items():
            value = getattr(self, name)
            if value and self.source != source:
                raise ValueError(
                    f"data.{name}={value!r} has no meaning with data.source={self.source!r}. "
                    f"Set data.source={source}, or leave data.{name} empty."
                )


@dataclass(frozen=True)
class Augment(_Section):
    """The augmentation policy. `size` 0 keeps the source's; `mean` and `std` per channel, () for none.

    `more` "one_of" adds one of equalize, autocontrast and sharpening to whatever the policy does to a training image.
    `small_crops` of `small_size` pixels, showing a share `small_area` of the image, are learnt beside it.
    """

    section = "augment"
    policy: str = _option("none")
    more: str = _option("none", choices=("none", "one_of"))
    size: int = _option(0, at_least=0)
    mean: tuple[float, ...] = _option(())
    std: tuple[float, ...] = _option((), above=0)
    small_crops: int = _option(0, at_least=0)
    small_size: int = _option(0, at_least=0)
    small_area: tuple[float, ...] = _option((0.08, 0.4), above=0, at_most=1)

    def __post_init__(self):
        super().__post_init__()
        if len(self.mean) != len(self.std):
            raise ValueError(
                f"augment.mean has {len(self.mean)} values and augment.std {len(self.std)}. "
                "Give one of each per channel, or neither."
            )
        if bool(self.small_crops) != bool(self.small_size):
            raise ValueError(
                f"augment.small_crops={self.small_crops} and augment.small_size={self.small_size}: give both, e.g. 2 "
                "crops of 16 pixels, or neither."
            )
        if len(self.small_area) != 2 or self.small_area[0] > self.small_area[1]:
            raise ValueError(f"augment.small_area={self.small_area}: give smallest and largest share, e.g. 0.08,0.4.")


@dataclass(frozen=True)
class Model(_Section):
    """Backbone and heads, one entry of `num_clusters` per head. `width` 0 is the backbone's own.

    `num_clusters` () is for labels that are given: as many as those have. `objectives`: what is learnt, the labels, the
    rotation of the images, or both; their losses are added. `projection`: sizes of the dense layers between features
    and heads, () for none; `temperature` above 0 brings what the heads see to length 1 / temperature. `over_heads`:
    the losses of the heads are averaged, as the paper, or added.
    """

    section = "model"
    backbone: str = _option("small_conv")
    width: int = _option(0, at_least=0)
    num_clusters: tuple[int, ...] = _option((20,) * 10, at_least=2)
    precision: str = _option("float32", choices=("float32", "mixed_float16"))
    objectives: tuple[str, ...] = _option(("labels",), choices=("labels", "rotation"))
    projection: tuple[int, ...] = _option((), at_least=1)
    temperature: float = _option(0.0, at_least=0)
    over_heads: str = _option("mean", choices=("mean", "sum"))

    def __post_init__(self):
        super().__post_init__()
        if not self.objectives or len(set(self.objectives)) < len(self.objectives):
            raise ValueError(
                f"model.objectives={self.objectives}: give each objective once, and one at least, e.g. labels,rotation."
            )


@dataclass(frozen=True)
class Label(_Section):
    """When and how labels are made.

    `labeller`: "sinkhorn" is the method; its baselines are "kmeans" on the features, with the head drawn anew at each
    pass, and "given": set once before training. Those are the true classes, or where `labels` names a labels file or
    the folder of a finished run, the labels in there: of all heads, or of `label_heads` in that order. `labels_sha256`,
    if it is set, must be that of the file. `num_relabels` 0 leaves the labels random. `policy` is the augmentation of
    the `views` that labels are made from, "" for that of training. `spread` above 1 makes labels soft: that many of an
    image's likeliest clusters are learnt, by their shares of the transport plan.
    """

    section = "label"
    lambda_: float = _option(25.0, above=0)
    num_relabels: int = _option(80, at_least=0)
    schedule: str = _option("quadratic", choices=("quadratic", "linear"))
    heads: str = _option("all", choices=("all", "in_turn"))
    views: int = _option(1, at_least=1)
    policy: str = _option("")
    batch_norm: str = _option("training", choices=("training", "inference"))
    spread: int = _option(1, at_least=1)
    rounding: str = _option("argmax", choices=("argmax", "balanced"))
    tolerance: float = _option(1e-3, above=0)
    max_passes: int = _option(1000, at_least=1)
    warm_start: bool = _option(True)
    cluster_weights: tuple[float, ...] = _option((), above=0)
    storage: str = _option("auto", choices=("auto", "exact", "float32", "recompute", "half", "disk"))
    labeller: str = _option("sinkhorn", choices=("sinkhorn", "kmeans", "given"))
    labels: str = _option("")
    label_heads: tuple[int, ...] = _option((), at_least=0)
    labels_sha256: str = _option("")

    def __post_init__(self):
        super().__post_init__()
        if self.labels and self.labeller != "given":
            raise ValueError(
                f"label.labels={self.labels!r} gives the labels, which label.labeller={self.labeller!r} makes itself. "
                "Set label.labeller=given, or leave label.labels empty."
            )
        for name in ("label_heads", "labels_sha256"):
            if getattr(self, name) and not self.labels:
                raise ValueError(f"label.{name} is of a labels file, and label.labels names none. Set label.labels.")
        if len(set(self.label_heads)) < len(self.label_heads):
            raise ValueError(f"label.label_heads={self.label_heads} names a head twice. Name each once.")
        balancing = {"cluster_weights": self.cluster_weights, "rounding": self.rounding == "balanced"}
        if self.spread > 1 and self.labeller != "sinkhorn":
            raise ValueError(
                f"label.spread={self.spread} takes shares from a transport plan, which "
                f"label.labeller={self.labeller!r} does not make. Leave it out, or use the labeller sinkhorn."
            )
        if self.spread > 1 and self.rounding == "balanced":
            raise ValueError(
                f"label.rounding='balanced' decides one label of every image, and label.spread={self.spread} has its "
                "shares learnt instead. Leave one of them out."
            )
        for name, wanted in balancing.items():
            if wanted and self.labeller != "sinkhorn":
                raise ValueError(
                    f"label.{name}={getattr(self, name)!r} decides cluster sizes, which "
                    f"label.labeller={self.labeller!r} does not. Leave it out, or use the labeller sinkhorn."
                )


@dataclass(frozen=True)
class Optimizer(_Section):
    """SGD with coupled L2. The learning rate is raised evenly from 0 over `warmup_epochs`; then `schedule` "drops" has
    it times `drop_factor` at the start of each of `drop_epochs`, and "cosine" brings it to 0 at the end of training.
    """

    section = "optimizer"
    learning_rate: float = _option(0.05, above=0)
    momentum: float = _option(0.9, at_least=0, below=1)
    l2: float = _option(5e-4, at_least=0)
    drop_epochs: tuple[int, ...] = _option((), at_least=1)
    drop_factor: float = _option(0.1, above=0, at_most=1)
    schedule: str = _option("drops", choices=("drops", "cosine"))
    warmup_epochs: int = _option(0, at_least=0)

    def __post_init__(self):
        super().__post_init__()
        if self.drop_epochs and self.schedule != "drops":
            raise ValueError(
                f"optimizer.drop_epochs={self.drop_epochs} has no meaning with optimizer.schedule={self.schedule!r}. "
                "Leave one of them out, e.g. --set optimizer.drop_epochs="
            )
        if list(self.drop_epochs) != sorted(set(self.drop_epochs)):
            raise ValueError(f"optimizer.drop_epochs={self.drop_epochs} must increase, e.g. 150,300,350.")


@dataclass(frozen=True)
class Evaluation(_Section):
    """What is measured at the end: nearest neighbours (features in memory) and K-means (slow if N is large).

    `knn_every` n also measures nearest neighbours after every n-th epoch, 0 for never. For trials, of which there are
    many: `baselines` False leaves out what needs no training, raw pixels and random weights, and `report` False the
    page, which tools.report draws later.
    """

    section = "evaluation"
    knn_k: int = _option(10, at_least=1)
    knn_sigma: float = _option(0.1, above=0)
    knn: bool = _option(True)
    kmeans: bool = _option(True)
    knn_every: int = _option(0, at_least=0)
    baselines: bool = _option(True)
    report: bool = _option(True)


@dataclass(frozen=True)
class Config(_Section):
    """One experiment. Drops of the learning rate may lie past the last epoch: a shortened run has none.

    `epochs` 0 leaves the network as it was drawn: the baseline of random weights. A checkpoint is written after every
    `checkpoint_every` epochs, at every label pass, and where `checkpoint_steps` steps have gone by without one.
    """

    name: str
    data: Data
    augment: Augment
    model: Model
    label: Label
    optimizer: Optimizer
    evaluation: Evaluation
    epochs: int = _option(at_least=0)
    batch_size: int = _option(at_least=1)
    seed: int = _option(0, at_least=0)
    checkpoint_every: int = _option(1, at_least=1)
    checkpoint_steps: int = _option(1000, at_least=1)

    def __post_init__(self):
        super().__post_init__()
        if not self.name:
            raise ValueError("name is empty. Name the experiment, e.g. after its config file.")
        if not self.model.num_clusters and self.label.labeller != "given":
            raise ValueError("model.num_clusters is empty. Give one cluster count per head, e.g. 128x10.")
        if "labels" not in self.model.objectives and (self.label.num_relabels or self.label.labeller == "given"):
            raise ValueError(
                f"model.objectives={self.model.objectives} learns no labels, but labels are to be made. "
                "Set label.num_relabels=0 with the labeller sinkhorn, or add the objective labels."
            )
        if self.augment.small_crops and "labels" not in self.model.objectives:
            raise ValueError(
                f"augment.small_crops={self.augment.small_crops} learn labels, and model.objectives="
                f"{self.model.objectives} has none. Leave the small crops out, or add the objective labels."
            )
        weights = len(self.label.cluster_weights)
        if weights and set(self.model.num_clusters) != {weights}:
            raise ValueError(
                f"label.cluster_weights has {weights} values, model.num_clusters={self.model.num_clusters}. "
                "Give one weight per cluster, with the same number of clusters in every head."
            )


def _checked(value, field, path):
    """`value` if it fits the field's annotation and rule; an int becomes a float where one is wanted."""
    if typing.get_origin(field.type) is tuple:
        element = typing.get_args(field.type)[0]
        if not isinstance(value, tuple):
            raise ValueError(f"{path}={value!r} must be a tuple of {element.__name__}, e.g. (2, 3).")
        return tuple(_checked_one(v, element, field.metadata, f"{path}[{i}]") for i, v in enumerate(value))
    return _checked_one(value, field.type, field.metadata, path)


def _checked_one(value, wanted, rule, path):
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:  # not isinstance: True must not pass for 1
        raise ValueError(f"{path}={value!r} must be of type {wanted.__name__}, not {type(value).__name__}.")
    if wanted is float and not math.isfinite(value):
        raise ValueError(f"{path}={value!r} must be finite.")
    if "choices" in rule and value not in rule["choices"]:
        raise ValueError(f"{path}={value!r} is unknown.{suggestion(value, rule['choices'])}")
    holds = {
        "at_least": lambda bound: value >= bound,
        "above": lambda bound: value > bound,
        "below": lambda bound: value < bound,
        "at_most": lambda bound: value <= bound,
    }
    bounds = {kind: rule[kind] for kind in holds if kind in rule}
    if not all(holds[kind](bound) for kind, bound in bounds.items()):
        allowed = " and ".join(f"{kind.replace('_', ' ')} {bound}" for kind, bound in bounds.items())
        raise ValueError(f"{path}={value!r} must be {allowed}.")
    return value


def suggestion(name: str, names: Sequence[str]) -> str:
    """ " Did you mean ...? Available: ..." with a leading space, or less when there is less to say."""
    if not names:
        return ""
    close = difflib.get_close_matches(name, names, n=1)
    return (f" Did you mean {close[0]!r}?" if close else "") + f" Available: {', '.join(names)}."
