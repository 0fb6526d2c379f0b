"""labels.csv: the labels of a run, as text that any program reads and that knows which dataset it belongs to.

    # selabel_tf labels, format 1
    # fingerprint: 5f0c...             of the dataset
    # config_hash: 93ab...             of the run
    # num_clusters: 20 20              one number for each head
    # num_examples: 1797
    index,id,head0,head1
    0,plates/0001.png,17,3             one row per example, in index order

The number of examples and the line end of the last row make a cut-off file recognisable. Ids may hold commas,
quotes and line breaks (quoted as csv does). Elsewhere: `pandas.read_csv(path, skiprows=5)`; not comment="#",
which cuts ids with a #.
"""

import array
import csv
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from selabel_tf.atomic_file import atomic_file

MAGIC = "# selabel_tf labels, format "
FORMAT = "1"
FACTS = {  # lines `# key: value`, in this order
    "fingerprint": r"\S.*",
    "config_hash": r"\S.*",
    "num_clusters": r"[1-9][0-9]*( [1-9][0-9]*)*",
    "num_examples": r"[1-9][0-9]*",
}
CHUNK = 4096  # rows turned into Python numbers at once: bounds the memory, not the speed


@dataclass(frozen=True, eq=False)
class Labels:
    """What the file holds. labels: [N, H] int32, column h in 0..num_clusters[h]-1; ids[i] names example i."""

    labels: np.ndarray
    ids: list[str]
    fingerprint: str
    num_clusters: tuple[int, ...]
    config_hash: str


def write(path, labels, source_ids, fingerprint, num_clusters, config_hash):
    """Write `labels` [N, H] of the examples `source_ids` [N]; an older file stays until this one is whole."""
    labels = np.asarray(labels)
    num_examples = len(source_ids)
    if labels.dtype.kind not in "iu" or labels.shape != (num_examples, len(num_clusters)) or labels.size == 0:
        raise ValueError(
            f"labels have shape {labels.shape} and type {labels.dtype}, expected integers of shape "
            f"({num_examples}, {len(num_clusters)}): a row for each id, a column for each of num_clusters."
        )
    _check_range(labels, num_clusters, "labels")
    facts = {
        "fingerprint": fingerprint,
        "config_hash": config_hash,
        "num_clusters": " ".join(str(int(k)) for k in num_clusters),
        "num_examples": str(num_examples),
    }
    for key, value in facts.items():
        if not re.fullmatch(FACTS[key], value) or not value.isprintable():
            raise ValueError(f"{key}={value!r} cannot be written, expected one line that matches {FACTS[key]}.")

    chunks = (labels[start : start + CHUNK].tolist() for start in range(0, num_examples, CHUNK))
    rows = zip(source_ids, itertools.chain.from_iterable(chunks), strict=True)
    # csv reads a lone carriage return as the end of a row, but Python 3.11 does not quote it.
    returns = any("\r" in name for name in source_ids)
    quoting = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    with atomic_file(path, "w") as file:
        file.write(f"{MAGIC}{FORMAT}\n")
        file.writelines(f"# {key}: {value}\n" for key, value in facts.items())
        file.write(",".join(_header(len(num_clusters))) + "\n")
        writer = csv.writer(file, lineterminator="\n", quoting=quoting)
        writer.writerows([index, name, *row] for index, (name, row) in enumerate(rows))


def read(path, fingerprint=None) -> Labels:
    """Read a labels file, whole or not at all. With `fingerprint`, refuse the labels of another dataset."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no labels file {path}. Training writes labels.csv into its run folder.")
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        facts = _read_facts(path, file)
        if fingerprint is not None and fingerprint != facts["fingerprint"]:
            raise ValueError(
                f"{path} is a labels file of another dataset: fingerprint {facts['fingerprint'][:12]}, "
                f"this dataset's is {fingerprint[:12]}. "
                "Take the labels of a run on this dataset, or load the dataset of that run."
            )
        num_clusters = tuple(int(k) for k in facts["num_clusters"].split())
        ids, labels = _read_rows(path, file, len(num_clusters), int(facts["num_examples"]))
    _check_range(labels, num_clusters, path)
    return Labels(labels, ids, facts["fingerprint"], num_clusters, facts["config_hash"])


def _read_facts(path, file):
    """The `# key: value` lines; leaves `file` at the header row."""
    first = file.readline(200).rstrip("\r\n")
    if not first.startswith(MAGIC):
        raise ValueError(f"{path} is not a labels file: its first line does not begin with {MAGIC!r}.")
    if first != MAGIC + FORMAT:
        raise ValueError(f"{path} has format {first.removeprefix(MAGIC)}, this version reads format {FORMAT}.")
    facts = {}
    for key, pattern in FACTS.items():
        match = re.fullmatch(f"# {key}: ({pattern})", file.readline().rstrip("\r\n"))
        if match is None:
            raise ValueError(f"{path} is damaged: it has no proper line '# {key}: ...'. Write the file again.")
        facts[key] = match[1]
    return facts


def _read_rows(path, file, num_heads, num_examples):
    """ids: list of N strings; labels: [N, H] int32."""
    header = _header(num_heads)
    ids, cells = [], array.array("i")
    try:
        reader = csv.reader(file, strict=True)  # strict: the end of the file inside a quoted id is an error
        if next(reader, None) != header:
            raise ValueError(f"{path} is damaged: the header row is not {','.join(header)}. Write the file again.")
        for expected, row in enumerate(reader):
            if len(row) != len(header):
                raise ValueError(
                    f"{path} is damaged: the row of index {expected} has {len(row)} cells, expected "
                    f"{len(header)}. Write the file again."
                )
            if row[0] != str(expected):
                _refuse_index(path, row[0], expected)
            ids.append(row[1])
            try:
                cells.extend(map(int, row[2:]))
            except (ValueError, OverflowError) as error:
                raise ValueError(
                    f"{path} has a label that is no integer in the row of index {expected}: {row[2:]}."
                ) from error
    except csv.Error as error:
        raise ValueError(f"{path} is damaged after index {len(ids) - 1}: {error}. Write the file again.") from error
    if len(ids) != num_examples or not _ends_with_line_end(path):
        raise ValueError(
            f"{path} is cut off: it has {len(ids)} rows, the last perhaps in part, expected {num_examples}. "
            "Copy or write it again."
        )
    return ids, np.array(cells, np.int32).reshape(num_examples, num_heads)


def _refuse_index(path, found, expected):
    # All rows before this one were 0 .. expected - 1, so a smaller index has been there already.
    if found.isdecimal() and int(found) < expected:
        raise ValueError(f"{path} has index {found} twice. Every example has one row: write the file again.")
    raise ValueError(
        f"{path} has index {found} where {expected} was expected: rows are missing or not in index order. "
        "Write the file again."
    )


def _ends_with_line_end(path):
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _check_range(labels, num_clusters, where):
    wrong = (labels < 0) | (labels >= np.asarray(num_clusters))  # [N, H]
    if wrong.any():
        row, head = np.argwhere(wrong)[0]
        raise ValueError(
            f"{where}: label {labels[row, head]} of index {row}, head {head} is out of range. "
            f"That head has {num_clusters[head]} clusters: 0 to {num_clusters[head] - 1}."
        )


def _header(num_heads):
    return ["index", "id", *(f"head{head}" for head in range(num_heads))]
