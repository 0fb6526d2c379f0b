"""The labels of a data set as a file of its own, which knows what it belongs to.

    write("labels.csv", labels)             text that any program reads
    write("labels.parquet", labels)         the same, a tenth of the time to read back
    labels = read(path, fingerprint)        whole, valid and of that data set, or an error

One row per example, in index order. `id` names the example, as the source does; the rest comes once per head:

    index, id
    head0                         the cluster
    head0_probability             the head's own probability (softmax) of that cluster, augmentation off
    head0_runner_up               the most probable other cluster
    head0_runner_up_probability   its probability

The last three are left out where there is no Confidence. Labels by transport are spread evenly over the clusters,
so the cluster of an image need not be its most probable one: then the runner-up is the more probable of the two.

With the rows travel the facts of FACTS. The number of examples makes a cut-off file recognisable.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import labels_csv, labels_parquet

TITLE, FORMAT = "selabel_tf labels, format ", "2"
FORMATS = {".csv": labels_csv, ".parquet": labels_parquet}
FACTS = {  # name -> what its text must look like
    "origin": "training|prediction",  # what training ended with, or the heads' own prediction
    "fingerprint": r"\S.*",  # of the data set
    "config_hash": r"\S.*",  # of the run
    "checkpoint_hash": r"\S.*",  # sha256 of the state that the labels come from
    "num_clusters": r"[1-9][0-9]{0,8}( [1-9][0-9]{0,8})*",  # one for each head
    "num_examples": r"[1-9][0-9]{0,11}",
}
LONGEST_ID = 2**16  # characters


@dataclass(frozen=True, eq=False)
class Confidence:
    """How sure the heads are: probability and runner_up_probability float32, runner_up int32, [N, H] each."""

    probability: np.ndarray
    runner_up: np.ndarray
    runner_up_probability: np.ndarray


@dataclass(frozen=True, eq=False)
class Labels:
    """What the file holds. labels: [N, H] int32, column h in 0..num_clusters[h]-1; ids[i] names example i."""

    labels: np.ndarray
    ids: Sequence[str]
    fingerprint: str
    num_clusters: tuple[int, ...]
    config_hash: str
    checkpoint_hash: str
    origin: str = "training"
    confidence: Confidence | None = None


def write(path, labels: Labels):
    """Write `labels`, as CSV or Parquet by the ending of `path`; an older file stays until this one is whole."""
    _check(labels, "the labels")
    format_of(path).write(path, TITLE + FORMAT, _facts(labels), labels.ids, _columns(labels))


def read(path, fingerprint=None) -> Labels:
    """Read a labels file, whole or not at all. With `fingerprint`, refuse the labels of another dataset."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no labels file {path}. Training writes labels.csv into its run folder, tools.labels others."
        )
    with open(path, "rb") as file:
        stored = labels_parquet if file.read(len(labels_parquet.MAGIC)) == labels_parquet.MAGIC else labels_csv
    title, facts, names = stored.read_head(path)
    _check_facts(path, title, facts)
    if fingerprint is not None and fingerprint != facts["fingerprint"]:
        raise ValueError(
            f"{path} is a labels file of another dataset: fingerprint {facts['fingerprint'][:12]}, "
            f"this dataset's is {fingerprint[:12]}. "
            "Take the labels of a run on this dataset, or load the dataset of that run."
        )
    num_clusters = tuple(int(k) for k in facts["num_clusters"].split())
    index, ids, columns = stored.read_rows(path, _expected(path, names, len(num_clusters)))
    _check_index(path, index, int(facts["num_examples"]))
    labels, *confidence = (
        np.stack(part, axis=1) for part in _by_meaning(list(columns.values()), len(num_clusters))
    )  # [N, H] each
    result = Labels(
        labels,
        ids,
        facts["fingerprint"],
        num_clusters,
        facts["config_hash"],
        facts["checkpoint_hash"],
        facts["origin"],
        Confidence(*confidence) if confidence else None,
    )
    _check(result, path)
    return result


def format_of(path):
    """The module that writes files of the ending of `path`."""
    ending = Path(path).suffix
    if ending not in FORMATS:
        raise ValueError(f"{path}: labels are written as {' or '.join(FORMATS)}. Choose a name with such an ending.")
    return FORMATS[ending]


def _column_types(num_heads, confident):
    """Name -> type of the columns after index and id."""
    types = {}
    for head in range(num_heads):
        types[f"head{head}"] = np.int32
        if confident:
            types[f"head{head}_probability"] = np.float32
            types[f"head{head}_runner_up"] = np.int32
            types[f"head{head}_runner_up_probability"] = np.float32
    return types


def _columns(labels):
    """Name -> [N], in the order of the file."""
    parts = [labels.labels]
    if (sure := labels.confidence) is not None:
        parts += [sure.probability, sure.runner_up, sure.runner_up_probability]
    types = _column_types(len(labels.num_clusters), len(parts) > 1)
    values = [np.asarray(part)[:, head] for head in range(len(labels.num_clusters)) for part in parts]
    return {name: value.astype(kind) for (name, kind), value in zip(types.items(), values, strict=True)}


def _by_meaning(columns, num_heads):
    """The columns of the file, head by head, as lists over the heads: clusters, probabilities, ..."""
    step = len(columns) // num_heads
    return [columns[first::step] for first in range(step)]


def _expected(path, names, num_heads):
    """Name -> type for a file with the columns `names`."""
    for confident in (False, True):
        types = _column_types(num_heads, confident)
        if names == ["index", "id", *types]:
            return types
    raise ValueError(
        f"{path} is damaged: its columns do not fit its {num_heads} heads: {', '.join(names)[:200]}. "
        f"Expected index, id, {', '.join(_column_types(num_heads, False))}"
        ", perhaps each with probability and runner-up. Write the file again."
    )


def _facts(labels):
    facts = {
        "origin": labels.origin,
        "fingerprint": labels.fingerprint,
        "config_hash": labels.config_hash,
        "checkpoint_hash": labels.checkpoint_hash,
        "num_clusters": " ".join(str(int(k)) for k in labels.num_clusters),
        "num_examples": str(len(labels.ids)),
    }
    for name, text in facts.items():
        if not re.fullmatch(FACTS[name], text) or not text.isprintable():
            raise ValueError(f"{name}={text!r} cannot be written, expected one line that matches {FACTS[name]}.")
    return facts


def _check_facts(path, title, facts):
    if title != TITLE + FORMAT:
        if not title.startswith(TITLE):
            raise ValueError(f"{path} is not a labels file: it does not say {TITLE + FORMAT!r} of itself.")
        raise ValueError(
            f"{path} has format {title.removeprefix(TITLE)[:20]}, this version reads format {FORMAT}. "
            "If its run is still there, write the file again: python -m tools.labels --workdir=RUN"
        )
    for name, pattern in FACTS.items():
        if not re.fullmatch(pattern, facts.get(name, "")):
            raise ValueError(f"{path} is damaged: it has no proper {name!r} in its head. Write the file again.")


def _check_index(path, index, num_examples):
    wrong = np.flatnonzero(index != np.arange(len(index)))
    if len(wrong):
        found, expected = int(index[wrong[0]]), int(wrong[0])
        # All rows before this one were 0 .. expected - 1, so a smaller index has been there already.
        if 0 <= found < expected:
            raise ValueError(f"{path} has index {found} twice. Every example has one row: write the file again.")
        raise ValueError(
            f"{path} has index {found} where {expected} was expected: rows are missing or not in index order. "
            "Write the file again."
        )
    if len(index) != num_examples:
        raise ValueError(
            f"{path} is cut off or was added to: it has {len(index)} rows, expected {num_examples}. "
            "Copy or write it again."
        )


def _check(labels, where):
    """Shapes that belong together, values in their ranges, ids that a file can hold."""
    clusters, expected = np.asarray(labels.labels), (len(labels.ids), len(labels.num_clusters))
    if clusters.dtype.kind not in "iu" or clusters.shape != expected or clusters.size == 0:
        raise ValueError(
            f"{where}: clusters have shape {clusters.shape} and type {clusters.dtype}, expected integers of shape "
            f"{expected}: a row for each id, at least one, and a column for each of num_clusters."
        )
    _check_ids(labels.ids, where)
    _check_clusters(clusters, labels.num_clusters, "label", where)
    sure = labels.confidence
    if sure is None:
        return
    shapes = [np.shape(part) for part in (sure.probability, sure.runner_up, sure.runner_up_probability)]
    if set(shapes) != {clusters.shape}:
        raise ValueError(
            f"{where}: the parts of the confidence have shapes {shapes}, expected {clusters.shape} of all."
        )
    _check_clusters(sure.runner_up, labels.num_clusters, "runner-up", where)
    _refuse(sure.runner_up == clusters, sure.runner_up, "runner-up", "is the cluster itself", where)
    for what, share in (("probability", sure.probability), ("runner-up's probability", sure.runner_up_probability)):
        _refuse(~((share >= 0) & (share <= 1)), share, what, "is not between 0 and 1", where)  # NaN is refused too
    both = sure.probability.astype(np.float64) + sure.runner_up_probability
    _refuse(both > 1 + 1e-5, both, "sum of both probabilities", "is more than 1", where)


def _check_ids(ids, where):
    for index, name in enumerate(ids):
        try:
            raw = name.encode("utf-8", "surrogateescape")
            same = raw.decode("utf-8", "surrogateescape") == name
        except UnicodeEncodeError:
            same = False
        if not same or len(name) > LONGEST_ID:
            raise ValueError(
                f"{where}: the id of index {index}, {name[:40]!r}, is no text that a file can hold "
                f"(UTF-8, or a file name in other bytes; up to {LONGEST_ID} characters). Name that example otherwise."
            )


def _check_clusters(clusters, num_clusters, what, where):
    outside = (clusters < 0) | (clusters >= np.asarray(num_clusters))  # [N, H]
    if outside.any():
        head = np.argwhere(outside)[0][1]
        sizes = f"is out of range. That head has {num_clusters[head]} clusters: 0 to {num_clusters[head] - 1}"
        _refuse(outside, clusters, what, sizes, where)


def _refuse(wrong, values, what, why, where):
    """An error about the first of `values` [N, H] that is wrong."""
    if np.any(wrong):
        row, head = np.argwhere(wrong)[0]
        raise ValueError(f"{where}: {what} {values[row, head]} of index {row}, head {head} {why}.")
