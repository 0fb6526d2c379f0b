"""An experiment as one frozen, validated value.

A `Config` is sections of plain numbers, words and tuples: it can be compared, hashed, written as JSON, and
changed on a command line (`section.field=value`) with its types checked. It imports no other room, so the
names of policies and backbones are checked where those are made; what can be judged from the value alone is
judged here.
"""

import dataclasses
import difflib
import hashlib
import importlib.util
import json
import math
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


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
    """

    section = "data"
    source: str = _option("digits", choices=("digits", "tfds", "folder"))
    name: str = _option("")
    split: str = _option("train")
    test_split: str = _option("")
    data_dir: str = _option("")
    path: str = _option("")
    examples_per_class: int = _option(0, at_least=0)

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
    """The augmentation policy. `size` 0 keeps the source's; `mean` and `std` per channel, () for none."""

    section = "augment"
    policy: str = _option("none")
    size: int = _option(0, at_least=0)
    mean: tuple[float, ...] = _option(())
    std: tuple[float, ...] = _option((), above=0)

    def __post_init__(self):
        super().__post_init__()
        if len(self.mean) != len(self.std):
            raise ValueError(
                f"augment.mean has {len(self.mean)} values and augment.std {len(self.std)}. "
                "Give one of each per channel, or neither."
            )


@dataclass(frozen=True)
class Model(_Section):
    """Backbone and heads, one entry of `num_clusters` per head. `width` 0 is the backbone's own."""

    section = "model"
    backbone: str = _option("small_conv")
    width: int = _option(0, at_least=0)
    num_clusters: tuple[int, ...] = _option((20,) * 10, at_least=2)
    precision: str = _option("float32", choices=("float32", "mixed_float16"))

    def __post_init__(self):
        super().__post_init__()
        if not self.num_clusters:
            raise ValueError("model.num_clusters is empty. Give one cluster count per head, e.g. 128x10.")


@dataclass(frozen=True)
class Label(_Section):
    """When and how labels are optimised."""

    section = "label"
    lambda_: float = _option(25.0, above=0)
    num_relabels: int = _option(80, at_least=0)
    schedule: str = _option("quadratic", choices=("quadratic", "linear"))
    heads: str = _option("all", choices=("all", "in_turn"))
    views: int = _option(1, at_least=1)
    batch_norm: str = _option("training", choices=("training", "inference"))
    rounding: str = _option("argmax", choices=("argmax", "balanced"))
    tolerance: float = _option(1e-3, above=0)
    max_passes: int = _option(1000, at_least=1)
    warm_start: bool = _option(True)
    cluster_weights: tuple[float, ...] = _option((), above=0)
    storage: str = _option("auto", choices=("auto", "float32", "recompute", "half", "disk"))


@dataclass(frozen=True)
class Optimizer(_Section):
    """SGD with coupled L2; at the start of each of `drop_epochs` the learning rate is times `drop_factor`."""

    section = "optimizer"
    learning_rate: float = _option(0.05, above=0)
    momentum: float = _option(0.9, at_least=0, below=1)
    l2: float = _option(5e-4, at_least=0)
    drop_epochs: tuple[int, ...] = _option((), at_least=1)
    drop_factor: float = _option(0.1, above=0, at_most=1)

    def __post_init__(self):
        super().__post_init__()
        if list(self.drop_epochs) != sorted(set(self.drop_epochs)):
            raise ValueError(f"optimizer.drop_epochs={self.drop_epochs} must increase, e.g. 150,300,350.")


@dataclass(frozen=True)
class Evaluation(_Section):
    """What is measured at the end of a run: nearest neighbours (all features in memory) and K-means (slow if N is large)."""

    section = "evaluation"
    knn_k: int = _option(10, at_least=1)
    knn_sigma: float = _option(0.1, above=0)
    knn: bool = _option(True)
    kmeans: bool = _option(True)


@dataclass(frozen=True)
class Config(_Section):
    """One experiment. Drops of the learning rate may lie past the last epoch: a shortened run has none."""

    name: str
    data: Data
    augment: Augment
    model: Model
    label: Label
    optimizer: Optimizer
    evaluation: Evaluation
    epochs: int = _option(at_least=1)
    batch_size: int = _option(at_least=1)
    seed: int = _option(0, at_least=0)
    checkpoint_every: int = _option(1, at_least=1)

    def __post_init__(self):
        super().__post_init__()
        if not self.name:
            raise ValueError("name is empty. Name the experiment, e.g. after its config file.")
        weights = len(self.label.cluster_weights)
        if weights and set(self.model.num_clusters) != {weights}:
            raise ValueError(
                f"label.cluster_weights has {weights} values, model.num_clusters={self.model.num_clusters}. "
                "Give one weight per cluster, with the same number of clusters in every head."
            )


def load(path: str | Path) -> Config:
    """Imports the config file at `path`, calls its `get_config()`. A bare name means `configs/<name>.py`."""
    path = Path(path)
    if path.suffix != ".py" and path.parent == Path("."):
        path = Path("configs") / f"{path.name}.py"
    if not path.is_file():
        names = sorted(p.stem for p in path.parent.glob("*.py") if p.stem != "__init__")
        raise FileNotFoundError(f"No config file {path}.{_suggestion(path.stem, names)}")
    spec = importlib.util.spec_from_file_location(f"selabel_tf_config_{path.stem}", path)
    if spec is None:
        raise ValueError(f"{path} is no Python file. A config is a .py file with a get_config().")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise ValueError(f"{path} has no get_config(). Define one that returns a selabel_tf.config.Config.")
    config = module.get_config()
    if not isinstance(config, Config):
        raise TypeError(f"get_config() of {path} returned {config!r}, not a selabel_tf.config.Config.")
    return config


def override(config: Config, assignments: Iterable[str]) -> Config:
    """`config` with each "section.field=value" (or "field=value") applied; the last one of a field wins.

    All assignments are gathered before anything is checked, so that fields which only make sense together
    (data.source and data.path) may come in any order.
    """
    changes = {}  # section name ("" for the config's own fields) -> {field name: value}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"Cannot read {assignment!r}. Write section.field=value, e.g. label.lambda_=10.")
        section, name, annotation = _find(config, path.strip())
        changes.setdefault(section, {})[name] = _parse(text.strip(), annotation, path.strip())
    top = changes.pop("", {})
    sections = {name: dataclasses.replace(getattr(config, name), **values) for name, values in changes.items()}
    return dataclasses.replace(config, **sections, **top)


def to_json(config: Config) -> str:
    return json.dumps(dataclasses.asdict(config), indent=2, allow_nan=False) + "\n"


def from_json(text: str) -> Config:
    """The config that `to_json` wrote. Strict: every key must be there, and no other."""
    values = json.loads(text)
    _check_keys(values, Config, "the config")
    for field in dataclasses.fields(Config):
        if dataclasses.is_dataclass(field.type):
            _check_keys(values[field.name], field.type, field.name)
            values[field.name] = field.type(**{k: _tuple(v) for k, v in values[field.name].items()})
    return Config(**values)


def differences(old: Config, new: Config) -> list[str]:
    """One line "section.field: old -> new" for each field that differs."""
    before, after = _flat(old), _flat(new)
    return [f"{path}: {before[path]!r} -> {after[path]!r}" for path in before if before[path] != after[path]]


def config_hash(config: Config) -> str:
    """sha256, in hex, of the values alone: the JSON's layout and the order of fields do not count."""
    canonical = json.dumps(dataclasses.asdict(config), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


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
        raise ValueError(f"{path}={value!r} is unknown.{_suggestion(value, rule['choices'])}")
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


def _find(config, path):
    """(section, field, annotation) of the dotted `path`."""
    section, dot, name = path.rpartition(".")
    known = {field.name: field.type for field in dataclasses.fields(config)}
    sections = [field for field, kind in known.items() if dataclasses.is_dataclass(kind)]
    if dot:
        if section not in sections:
            raise ValueError(f"Unknown section {section!r} in {path!r}.{_suggestion(section, sections)}")
        known = {field.name: field.type for field in dataclasses.fields(known[section])}
    elif name in sections:
        fields = ", ".join(f"{name}.{field.name}" for field in dataclasses.fields(known[name]))
        raise ValueError(f"{name} is a section. Set one of its fields: {fields}.")
    if name not in known:
        names = [f"{section}{dot}{field}" for field in known]
        raise ValueError(f"Unknown field {path!r}.{_suggestion(path, names)}")
    return section, name, known[name]


def _parse(text, annotation, path):
    """The value that `text` spells for a field of this type. "20,20" is a tuple, "128x10" ten times 128."""
    if typing.get_origin(annotation) is tuple:
        element = typing.get_args(annotation)[0]
        values = []
        for item in text.split(",") if text else ():
            item, times, repeats = item.partition("x") if element is int else (item, "", "")
            count = _parse(repeats, int, path) if times else 1
            values += [_parse(item, element, path)] * count
        return tuple(values)
    if annotation is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{path}={text!r} must be true or false.")
        return text.lower() == "true"
    try:
        return annotation(text)
    except ValueError as error:
        raise ValueError(f"{path}: cannot read {text!r} as {annotation.__name__}.") from error


def _check_keys(values, kind, where):
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a JSON object, not {values!r}.")
    names = [field.name for field in dataclasses.fields(kind)]
    unknown = [name for name in values if name not in names]
    missing = [name for name in names if name not in values]
    if unknown or missing:
        raise ValueError(f"Keys of {where}: unknown {unknown}, missing {missing}. Expected exactly {names}.")


def _flat(config):
    flat = {}
    for name, value in dataclasses.asdict(config).items():
        flat |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _tuple(value):
    return tuple(value) if isinstance(value, list) else value


def _suggestion(name: str, names: Sequence[str]) -> str:
    """ " Did you mean ...? Available: ..." with a leading space, or less when there is less to say."""
    if not names:
        return ""
    close = difflib.get_close_matches(name, names, n=1)
    return (f" Did you mean {close[0]!r}?" if close else "") + f" Available: {', '.join(names)}."
