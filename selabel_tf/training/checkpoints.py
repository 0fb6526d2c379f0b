"""The whole state of a run, one folder per checkpoint; a kill at any moment leaves a good one.

    checkpoints/epoch-0007/state.npz        every variable, by position: v00000, v00001, ...
    checkpoints/epoch-0007/manifest.json    sha256 of state.npz; name, shape, dtype of each variable; facts

The state is the model's variables (weights, BatchNorm statistics, labels, and the seed states of Dropout,
which `model.weights` leaves out) and the optimizer's. Metrics are left out: `fit` resets them at each epoch.

The manifest is written last: a folder without one, or whose checksum fails, was torn and is passed over.

Variables are matched by position, and their names only compared without Keras's running numbers: a model made
second in a process has dense_1 where the first had dense.
"""

import hashlib
import io
import json
import re
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from selabel_tf.atomic_file import write_atomically

STATE = "state.npz"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on disk, its checksum verified."""

    path: Path
    facts: dict
    variables: tuple[dict, ...]  # name, shape, dtype of each
    sha256: str  # of the state, in hex


def save(folder: str | Path, model, facts: dict, keep: int = 2) -> Checkpoint:
    """Writes the state of a compiled model to `folder`/epoch-NNNN; of the ones before it, `keep` - 1 stay.

    Args:
      facts: what else a resumed run must know, as JSON; `facts["epoch"]`, the epochs done, names the folder.
    """
    epoch = facts.get("epoch")
    if type(epoch) is not int or epoch < 0:
        raise ValueError(f"facts['epoch'] must be the number of epochs done, but is {epoch!r}.")
    if keep < 1:
        raise ValueError(f"keep={keep} would remove the checkpoint just written. Keep 1 or more.")
    path = Path(folder) / f"epoch-{epoch:04d}"
    path.mkdir(parents=True, exist_ok=True)
    state = _state(model)
    arrays = [variable.numpy() for _, variable in state]
    described = [_describe(name, array) for (name, _), array in zip(state, arrays, strict=True)]
    buffer = io.BytesIO()
    np.savez(buffer, **{_key(i): _storable(array) for i, array in enumerate(arrays)})
    data = buffer.getvalue()
    manifest = {"sha256": hashlib.sha256(data).hexdigest(), "facts": facts, "variables": described}
    text = json.dumps(manifest, indent=1, allow_nan=False)  # before any writing: facts may not be JSON
    write_atomically(path / STATE, data)
    write_atomically(path / MANIFEST, text)
    folders = _folders(folder)
    position = folders.index(path)
    whole = [other for other in folders[position + 1 :] if _verified(other)[1] is not None]
    for other in set(folders) - {path, *whole[: keep - 1]}:  # torn ones, old ones, and a future given up
        shutil.rmtree(other)
    return Checkpoint(path, json.loads(text)["facts"], tuple(described), manifest["sha256"])


def latest(folder: str | Path) -> Checkpoint | None:
    """The newest whole checkpoint in `folder`, or None. Warns of each torn one that it passes over."""
    for path in _folders(folder):
        problem, manifest = _verified(path)
        if manifest is not None:
            return Checkpoint(path, manifest["facts"], tuple(manifest["variables"]), manifest["sha256"])
        warnings.warn(f"Passing over checkpoint {path}: {problem}.", stacklevel=2)
    return None


def restore(checkpoint: Checkpoint, model) -> None:
    """Gives a model, made and compiled as the saved one was, its state. Checks all, then assigns."""
    state = _state(model)
    saved = checkpoint.variables
    if len(saved) != len(state):
        raise ValueError(
            f"Checkpoint {checkpoint.path} has {len(saved)} variables and the model with its optimizer "
            f"{len(state)}. Resume with the configuration that wrote it, or start in a new folder."
        )
    for (name, variable), there in zip(state, saved, strict=True):
        here = _describe(name, variable.numpy())
        if here != there:
            raise ValueError(
                f"Checkpoint {checkpoint.path} has {_text(there)} where the model has {_text(here)}. "
                "Resume with the configuration that wrote it, or start in a new folder."
            )
    with np.load(checkpoint.path / STATE, allow_pickle=False) as arrays:
        values = [arrays[_key(i)].view(there["dtype"]) for i, there in enumerate(saved)]
    for (_, variable), value in zip(state, values, strict=True):
        variable.assign(value)


def _state(model):
    """[(name, variable), ...] of all that changes in training, in the order of the architecture."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError(f"{model.name} has no optimizer, which is part of a run's state. Compile the model first.")
    if not optimizer.built:
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
    # An optimizer's variables lie in another name scope when `fit` builds it than when we do: last part only.
    return [(_unnumbered(v.path), v) for v in model.variables] + [
        ("optimizer/" + _unnumbered(v.path.rpartition("/")[2]), v) for v in optimizer.variables
    ]


def _unnumbered(path):
    """ "functional_1/dense_12/kernel" -> "functional/dense/kernel"."""
    return re.sub(r"_\d+(?=[/_]|$)", "", path)


def _describe(name, array):
    return {"name": name, "shape": list(array.shape), "dtype": array.dtype.name}


def _text(description):
    return f"{description['name']} {description['dtype']} {description['shape']}"


def _key(position):
    return f"v{position:05d}"


def _storable(array):
    """The npy format does not know bfloat16 and its kin: store the bits; the manifest has the dtype."""
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def _folders(folder):
    """Checkpoint folders, newest first."""
    numbered = [(re.fullmatch(r"epoch-(\d{4,})", path.name), path) for path in Path(folder).glob("epoch-*")]
    return [path for match, path in sorted(numbered, key=_epoch_of, reverse=True) if match]


def _epoch_of(numbered):
    match, _ = numbered
    return int(match.group(1)) if match else -1


def _verified(path):
    """(None, manifest) of a whole checkpoint, (what is wrong, None) of a torn one."""
    if not (path / MANIFEST).exists():
        return f"it has no {MANIFEST}", None
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # no JSON, or no text at all
        return f"its {MANIFEST} cannot be read", None
    if not isinstance(manifest, dict) or set(manifest) != {"sha256", "facts", "variables"}:
        return f"its {MANIFEST} is not one of ours", None
    if not (path / STATE).exists():
        return f"it has no {STATE}", None
    with (path / STATE).open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != manifest["sha256"]:
            return f"its {STATE} fails the checksum", None
    return None, manifest
