"""Label transfer: the labels that another run has found, or that a file holds, as the labels of a new run.

    config = transferred(config, "runs/first", heads=(0, 3))    what a config has to say for it
    labels = read(config, source, workdir)                      [N, H], checked against the images
    keep(config, workdir)                                       a copy of the file in the new run's folder

From then on the run needs its own folder only: it is resumed with that copy, whatever becomes of the first run. The
config holds the checksum of the file, so neither another file in its place nor a damaged copy goes unnoticed.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..atomic_file import write_atomically
from ..export import labels as label_files

COPY = "given_labels"


def transferred(config, labels, heads=(), workdir=None):
    """`config` for training on `labels`: a labels file, or the folder of a finished run.

    Args:
        heads: of the labels, to be trained on; all by default.
        workdir: the new run's folder; its copy serves where `labels` is gone, or holds the same labels in other words.
    """
    copy = workdir and _copy(workdir)
    path = copy if copy and _is_gone(labels) else _file(labels)
    found = label_files.read(path)
    if copy and _same(found, label_files.read(copy)):
        path = copy
    chosen = _chosen(found, heads, path)
    label = replace(config.label, labeller="given", labels=str(Path(labels)), label_heads=tuple(heads))
    label = replace(label, labels_sha256=_sha256(path))
    num_clusters = tuple(found.num_clusters[head] for head in chosen)
    if config.model.num_clusters not in ((), found.num_clusters):  # of all heads: the chosen ones are a part of them
        _check_counts(config.model.num_clusters, num_clusters, path)
    return replace(config, label=label, model=replace(config.model, num_clusters=num_clusters))


def read(config, source, workdir=None):
    """The labels int32 [N, H] that `config` names, of the images of `source`; None where it names none.

    workdir: a folder whose copy is read in place of the original, if it has one.
    """
    label = config.label
    if not label.labels:
        return None
    path = (workdir and _copy(workdir)) or _file(label.labels)
    found = label_files.read(path, source.fingerprint)
    if label.labels_sha256 and _sha256(path) != label.labels_sha256:
        raise ValueError(
            f"{path} is not the labels file that this run was made for: its sha256 is {_sha256(path)[:12]}, expected "
            f"{label.labels_sha256[:12]}. Bring that file back, or begin a new run on these labels."
        )
    if found.ids != source.ids:
        row = next(i for i, (one, other) in enumerate(zip(found.ids, source.ids, strict=True)) if one != other)
        raise ValueError(
            f"{path} has labels for {found.ids[row]!r} at index {row}, where {source.name} has {source.ids[row]!r}. "
            "Take the labels of a run on these images."
        )
    chosen = _chosen(found, label.label_heads, path)
    _check_counts(config.model.num_clusters, tuple(found.num_clusters[head] for head in chosen), path)
    return np.ascontiguousarray(found.labels[:, chosen])


def keep(config, workdir):
    """Copies the labels file that `config` names into the run folder, unless it is there."""
    if config.label.labels and _copy(workdir) is None:
        path = _file(config.label.labels)
        ending = path.suffix if path.suffix in label_files.FORMATS else ".csv"  # a reader looks inside
        write_atomically(Path(workdir) / f"{COPY}{ending}", path.read_bytes())


def _file(labels):
    """The labels file of a run folder, or the file itself."""
    path = Path(labels)
    if not path.is_dir():
        return path
    if not (path / "labels.csv").is_file():
        raise ValueError(
            f"{path} holds no labels.csv: it is no run folder, its run is not finished, or it learnt no labels but "
            "rotation. Let the run come to its end, or write the labels it has: "
            f"python -m tools.labels --workdir={path}"
        )
    return path / "labels.csv"


def _is_gone(labels):
    path = Path(labels)
    return not (path / "labels.csv" if path.is_dir() else path).exists()


def _same(one, other):
    """Whether two files give the same labels to the same images; tools.labels adds what the network thinks of them."""
    alike = ("ids", "fingerprint", "num_clusters", "origin", "config_hash", "checkpoint_hash")
    return all(getattr(one, name) == getattr(other, name) for name in alike) and np.array_equal(
        one.labels, other.labels
    )


def _copy(workdir):
    paths = [Path(workdir) / f"{COPY}{ending}" for ending in label_files.FORMATS]
    return next(filter(Path.is_file, paths), None)


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _chosen(found, heads, path):
    """The heads as a list of columns, all of them if none is named."""
    count = len(found.num_clusters)
    missing = [head for head in heads if not 0 <= head < count]
    if missing:
        raise ValueError(f"{path} has no head {missing[0]}: it has {count}, 0 to {count - 1}. Choose among those.")
    return list(heads or range(count))


def _check_counts(wanted, found, path):
    if tuple(wanted) != tuple(found):
        raise ValueError(
            f"model.num_clusters={wanted} and the heads of {path} have {' '.join(map(str, found))} clusters. Leave it "
            "empty (--set model.num_clusters=), or give the same."
        )
