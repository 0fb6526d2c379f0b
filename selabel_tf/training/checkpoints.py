"""The whole state of a run, one folder per checkpoint; a kill at any moment leaves a good one.

    checkpoints/step-00000123-labels-0004/      the state after 123 training steps and 4 label passes
        state.npz        every variable, by position: v00000, v00001, ...
        manifest.json    name, shape and dtype of each; the facts that a resumed run has to know
        SHA256SUMS       of the two, as `sha256sum --check` reads them

The state is the model's variables (weights, BatchNorm statistics, labels, log-scalings, and the seed states of Dropout,
which `model.weights` leaves out), those of its metrics, and the optimizer's.

A checkpoint is written into a hidden folder, forced to disk and renamed; it goes by being renamed first and emptied
then. So under its name it is whole, or not there, whoever looks and whenever the power fails. What disks do to it
later the checksums tell.

Variables are matched by position, and their names only compared without Keras's running numbers: a model made
second in a process has dense_1 where the first had dense.
"""

import hashlib
import json
import math
import os
import re
import shutil
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from selabel_tf.atomic_file import sync_folder

STATE = "state.npz"
MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
VARIABLE = {"name", "shape", "dtype"}  # what a manifest says of one
KEPT = 3  # checkpoints at once, by default


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on disk, its checksums verified."""

    path: Path
    facts: dict
    variables: tuple[dict, ...]  # name, shape, dtype of each
    sha256: str  # of the state, in hex: the same for the same state


class NotFiniteError(ValueError):
    """A state with NaN or infinity in it, which is not saved: nothing good can come of it."""


def save(folder: str | Path, model, facts: dict, keep: int = KEPT) -> Checkpoint:
    """Writes the state of a compiled model to `folder`; of the checkpoints before it, `keep` - 1 stay.

    Args:
      facts: what else a resumed run must know, as JSON; `facts["step"]` and `facts["label_passes"]`, the training
        steps and the label passes done, name the checkpoint.
    """
    if keep < 1:
        raise ValueError(f"keep={keep} would remove the checkpoint just written. Keep 1 or more.")
    path = Path(folder) / _name(facts)
    state = _state(model)
    described = [_describe(name, variable) for name, variable in state]
    text = json.dumps({"facts": facts, "variables": described}, indent=1, allow_nan=False)  # may fail: before writing
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.parent / f".{path.name}.part"
    shutil.rmtree(part, ignore_errors=True)  # what a kill left
    try:
        part.mkdir()
        sums = {STATE: _write_state(part / STATE, state), MANIFEST: _write(part / MANIFEST, text)}
        _write(part / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))
        sync_folder(part)
        _remove(path)  # a torn one of the same name, or the same state again
        os.rename(part, path)
        sync_folder(path.parent)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        before = next((f"{other.name} is as it was" for other in _folders(path.parent) if other != path), "")
        failure = OSError(
            f"Checkpoint {path} could not be written: {error.strerror or error}. "
            f"{before or 'There is none before it'}. Make room, or mend what else the disk lacks; the same command "
            "then goes on from there."
        )
        failure.errno = error.errno
        raise failure from error
    _keep_last(path, keep)
    return Checkpoint(path, json.loads(text)["facts"], tuple(described), sums[STATE])


def latest(folder: str | Path) -> Checkpoint | None:
    """The newest whole checkpoint in `folder`, or None if there are none at all.

    Warns of each damaged one that it passes over. Where there is none but damaged ones, that is an error: whoever
    began anew then would do so unasked.
    """
    while True:
        paths, damaged = _folders(folder), []
        for path in paths:
            try:
                checkpoint = _verified(path)
            except FileNotFoundError:
                if not path.exists():  # removed while we read: a run in progress has written a newer one
                    break
                raise
            except _DamagedError as problem:
                damaged.append(f"{path}: {problem}")
                continue
            for text in damaged:
                warnings.warn(f"Passing over checkpoint {text}. Taking {path.name} instead.", stacklevel=2)
            return checkpoint
        else:
            break
    if damaged:
        raise ValueError(
            "No checkpoint is whole:\n  " + "\n  ".join(damaged) + f"\nBring one back from a copy, or remove {folder} "
            "to begin the run anew."
        )
    old = sorted(Path(folder).glob("epoch-*/manifest.json"))
    if old:
        raise ValueError(
            f"{old[-1].parent} is a checkpoint of an earlier version of this project, which this one does not read. "
            "Go on with the version that wrote it, or begin anew in another folder."
        )
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
        here = _describe(name, variable)
        if here != there:
            raise ValueError(
                f"Checkpoint {checkpoint.path} has {_text(there)} where the model has {_text(here)}. "
                "Resume with the configuration that wrote it, or start in a new folder."
            )
    try:
        with zipfile.ZipFile(checkpoint.path / STATE) as archive:
            for position, (_, variable) in enumerate(state):
                with archive.open(_key(position)) as file:
                    variable.assign(_read_array(file, saved[position]))
    except (ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:  # its checksum fits: it was made so
        raise ValueError(
            f"{checkpoint.path / STATE} does not hold what its {MANIFEST} says: {error}. Bring this checkpoint back "
            "from a copy, or remove its folder: then the one before it serves."
        ) from error


def remove_leftovers(folder: str | Path) -> None:
    """Removes what kills in the middle of writing and removing left. Nobody may be writing there meanwhile."""
    for path in Path(folder).glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)


def _name(facts):
    numbers = []
    for key, what in (("step", "training steps"), ("label_passes", "label passes")):
        if type(facts.get(key)) is not int or facts[key] < 0:
            raise ValueError(f"facts[{key!r}] must be the number of {what} done, but is {facts.get(key)!r}.")
        numbers.append(facts[key])
    return "step-{:08d}-labels-{:04d}".format(*numbers)


def _folders(folder):
    """Checkpoint folders, newest first."""
    form = re.compile(r"step-(\d{8,})-labels-(\d{4,})")
    matches = [(form.fullmatch(path.name), path) for path in Path(folder).glob("step-*")]
    numbered = [((int(match[1]), int(match[2])), path) for match, path in matches if match]
    return [path for _, path in sorted(numbered, reverse=True)]


def _keep_last(path, keep):
    """Removes all but `path` and the `keep` - 1 whole checkpoints before it: older, torn, and a future given up."""
    folders = _folders(path.parent)
    kept = [path]
    for other in folders[folders.index(path) + 1 :]:
        if len(kept) < keep and _is_whole(other):
            kept.append(other)
    for other in folders:
        if other not in kept:
            _remove(other)


def _remove(path):
    """Removes a checkpoint; its name goes first, all at once."""
    gone = path.parent / f".{path.name}.gone"
    shutil.rmtree(gone, ignore_errors=True)
    if path.exists():
        os.rename(path, gone)
        shutil.rmtree(gone)


def _state(model):
    """[(name, variable), ...] of all that changes in training, in the order of the architecture."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError(f"{model.name} has no optimizer, which is part of a run's state. Compile the model first.")
    if not optimizer.built:
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
    # Variables of optimizers and metrics lie in other name scopes when `fit` makes them than when we do: last part.
    return (
        [(_unnumbered(v.path), v) for v in model.variables]
        + [(f"metrics/{_last_part(v)}", v) for v in model.metrics_variables]
        + [(f"optimizer/{_last_part(v)}", v) for v in optimizer.variables]
    )


def _last_part(variable):
    return _unnumbered(variable.path.rpartition("/")[2])


def _unnumbered(path):
    """ "functional_1/dense_12/kernel" -> "functional/dense/kernel"."""
    return re.sub(r"_\d+(?=[/_]|$)", "", path)


def _describe(name, variable):
    return {"name": name, "shape": list(variable.shape), "dtype": str(variable.dtype)}


def _text(description):
    return f"{description['name']} {description['dtype']} {description['shape']}"


def _key(position):
    return f"v{position:05d}.npy"


def _write(path, text):
    """Writes a small file to disk; its sha256."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _write_state(path, state):
    """Writes the variables one by one, so that memory holds a second copy of one only; the file's sha256.

    The same values give the same bytes: the archive's members carry no time.
    """
    with path.open("x+b") as file:
        with zipfile.ZipFile(file, "w") as archive:
            for position, (name, variable) in enumerate(state):
                array = variable.numpy()
                if array.dtype.kind == "f" and not np.isfinite(array).all():
                    raise NotFiniteError(f"{name} is not finite")
                with archive.open(zipfile.ZipInfo(_key(position)), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _storable(array), version=(1, 0), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _storable(array):
    """The npy format does not know bfloat16 and its kin: store the bits; the manifest has the dtype."""
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def _read_array(file, description):
    """One member of the archive, whose header must announce what the manifest does before any of it is read."""
    dtype, shape = np.dtype(description["dtype"]), tuple(description["shape"])
    stored = np.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{description['name']} has another version of the format")
    found, _, kind = np.lib.format.read_array_header_1_0(file)
    if (found, kind) != (shape, stored):
        raise ValueError(f"{kind} {list(found)} stands in place of {_text(description)}")
    data = file.read(stored.itemsize * math.prod(shape))
    return np.frombuffer(data, stored).reshape(shape).view(dtype)


class _DamagedError(Exception):
    """What is wrong with a checkpoint."""


def _is_whole(path):
    try:
        _verified(path)
    except _DamagedError:
        return False
    return True


def _verified(path):
    """The Checkpoint in `path`. Raises _DamagedError, or FileNotFoundError where one vanishes meanwhile."""
    missing = [name for name in (SUMS, MANIFEST, STATE) if not (path / name).is_file()]
    if missing and path.exists():
        raise _DamagedError(f"it has no {missing[0]}")
    lines = (path / SUMS).read_bytes().decode("utf-8", "replace").splitlines()
    sums = dict(reversed(line.split("  ", 1)) for line in lines if "  " in line)
    if set(sums) != {STATE, MANIFEST}:
        raise _DamagedError(f"its {SUMS} cannot be read")
    text = (path / MANIFEST).read_bytes()
    if hashlib.sha256(text).hexdigest() != sums[MANIFEST]:
        raise _DamagedError(f"its {MANIFEST} fails the checksum")
    with (path / STATE).open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sums[STATE]:
            raise _DamagedError(f"its {STATE} fails the checksum")
    try:
        manifest = json.loads(text)
        facts, variables = manifest["facts"], tuple(manifest["variables"])
        if _name(facts) != path.name or not all(variable.keys() == VARIABLE for variable in variables):
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise _DamagedError(f"its {MANIFEST} is not one of ours") from None
    return Checkpoint(path, facts, variables, sums[STATE])
