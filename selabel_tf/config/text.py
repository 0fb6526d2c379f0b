"""Configs as text: files that make them, settings of a command line that change them, JSON that keeps them."""

import dataclasses
import hashlib
import importlib.util
import json
import typing
from collections.abc import Iterable
from pathlib import Path

from ..json_file import parse
from .sections import Config, suggestion


def load(path: str | Path) -> Config:
    """Imports the config file at `path`, calls its `get_config()`. A bare name means `configs/<name>.py`.

    A .py file is a program, which runs: load those you would run. A .json file is the config.json that a run has left,
    and is read as data only.
    """
    path = Path(path)
    if path.suffix == ".json":
        return read(path)
    if path.suffix != ".py" and path.parent == Path("."):
        path = Path("configs") / f"{path.name}.py"
    if not path.is_file():
        names = sorted(p.stem for p in path.parent.glob("*.py") if p.stem != "__init__")
        raise FileNotFoundError(f"No config file {path}.{suggestion(path.stem, names)}")
    spec = importlib.util.spec_from_file_location(f"selabel_tf_config_{path.stem}", path)
    if spec is None:
        raise ValueError(f"{path} is no Python file. A config is a .py file with a get_config().")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise ValueError(f"{path} has no get_config(). Define one that returns a selabel_tf.config.Config.")
    try:
        config = module.get_config()
    except TypeError as error:  # a misspelt field of a section, most likely
        raise ValueError(f"get_config() of {path}: {error}.") from error
    if not isinstance(config, Config):
        raise ValueError(f"get_config() of {path} returned {config!r}, not a selabel_tf.config.Config.")
    return config


def read(path: str | Path) -> Config:
    """The config of a run's config.json."""
    try:
        return from_json(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not the config.json of a run: {error}. Bring back the one it was.") from error


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
    """The config that `to_json` wrote, now or before some field came to be: that field then has its default."""
    values = parse(text)
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


def assignments(old: Config, new: Config) -> list[str]:
    """What makes `new` of `old` on a command line: `override(old, assignments(old, new)) == new`."""
    before, after = _flat(old), _flat(new)
    return [f"{path}={_spelled(after[path])}" for path in before if before[path] != after[path]]


def config_hash(config: Config) -> str:
    """sha256, in hex, of the values that are not their fields' defaults: a new field leaves it alone.

    The JSON's layout and the order of fields do not count.
    """
    canonical = json.dumps(_told(config), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _told(section):
    """Field -> value, of those that differ from their default."""
    told = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            told[field.name] = _told(value)
        elif value != field.default:
            told[field.name] = value
    return told


def _find(config, path):
    """(section, field, annotation) of the dotted `path`."""
    section, dot, name = path.rpartition(".")
    known = {field.name: field.type for field in dataclasses.fields(config)}
    sections = [field for field, kind in known.items() if dataclasses.is_dataclass(kind)]
    if dot:
        if section not in sections:
            raise ValueError(f"Unknown section {section!r} in {path!r}.{suggestion(section, sections)}")
        known = {field.name: field.type for field in dataclasses.fields(known[section])}
    elif name in sections:
        fields = ", ".join(f"{name}.{field.name}" for field in dataclasses.fields(known[name]))
        raise ValueError(f"{name} is a section. Set one of its fields: {fields}.")
    if name not in known:
        names = [f"{section}{dot}{field}" for field in known]
        raise ValueError(f"Unknown field {path!r}.{suggestion(path, names)}")
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


def _spelled(value):
    """The text that `_parse` reads as `value`."""
    if isinstance(value, tuple | list):
        whole = len(value) > 1 and isinstance(value[0], int) and len(set(value)) == 1
        return f"{value[0]}x{len(value)}" if whole else ",".join(map(_spelled, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_keys(values, kind, where):
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a JSON object, not {values!r}.")
    fields = dataclasses.fields(kind)
    names = [field.name for field in fields]
    unknown = [name for name in values if name not in names]
    missing = [f.name for f in fields if f.name not in values and f.default is dataclasses.MISSING]
    if unknown or missing:
        raise ValueError(f"Keys of {where}: unknown {unknown}, missing {missing}. Known are {names}.")


def _flat(config):
    flat = {}
    for name, value in dataclasses.asdict(config).items():
        flat |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _tuple(value):
    return tuple(value) if isinstance(value, list) else value
