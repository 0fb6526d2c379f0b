"""A table with facts as CSV:

    # selabel_tf labels, format 2      the title
    # fingerprint: 5f0c...             the facts, one a line
    index,id,head0,head1               the names of the columns
    0,plates/0001.png,17,3             the rows

Ids may hold commas, quotes and line breaks, quoted as csv does. A spreadsheet would take an id like `=1+2` for a
formula and run it: an id that begins with = + - @ (after spaces too), with a tab or a line break, or with an
apostrophe, gets one apostrophe in front, and `read_rows` takes one off again: every id comes back exactly. Numbers
that are not whole have six decimals. The line end of the last row makes a cut-off file recognisable.

Elsewhere: `pandas.read_csv(path, skiprows=7)`; not comment="#", which cuts ids with a #.
"""

import csv
import itertools
import os
import re

import numpy as np

from selabel_tf.atomic_file import atomic_file

CHUNK = 8192  # rows that are Python objects at once: bounds the memory, not the speed
DECIMALS = 6
LONGEST_LINE = 2**24  # of the head, in characters: something else than a labels file may have no line ends
FORMULA = re.compile(r"\s*['=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")  # the last four: wide forms of = + - @


def write(path, title, facts, ids, columns):
    """facts: name -> one line of text; ids: N strings; columns: name -> [N], whole numbers or float."""
    num_rows = len(ids)
    # csv reads a lone carriage return as the end of a row, but Python 3.11 does not quote it.
    returns = any("\r" in name for name in ids)
    quoting = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    with atomic_file(path, "w") as file:
        file.write(f"# {title}\n")
        file.writelines(f"# {name}: {text}\n" for name, text in facts.items())
        file.write(",".join(["index", "id", *columns]) + "\n")
        writer = csv.writer(file, lineterminator="\n", quoting=quoting)
        for start in range(0, num_rows, CHUNK):
            stop = min(start + CHUNK, num_rows)
            names = map(harmless, ids[start:stop])
            cells = (_printable(column[start:stop]) for column in columns.values())
            writer.writerows(zip(range(start, stop), names, *cells, strict=True))


def read_head(path):
    """(title, facts, names of the columns). What they must be is for the caller to say."""
    with _open(path) as file:
        title, facts, header = _read_head(file)
    return title, facts, header.split(",")


def read_rows(path, types):
    """(index int64 [N], ids, name -> column [N]) for columns of these types: name -> NumPy type."""
    width = 2 + len(types)
    ids, parts = [], [[np.empty(0, kind)] for kind in (np.int64, *types.values())]
    with _open(path) as file:
        _read_head(file)
        reader = csv.reader(file, strict=True)  # strict: the end of the file inside a quoted id is an error
        try:
            while rows := list(itertools.islice(reader, CHUNK)):
                for index, row in enumerate(rows, len(ids)):
                    if len(row) != width:
                        raise ValueError(
                            f"{path} is damaged: the row of index {index} has {len(row)} cells, expected {width}. "
                            "Write the file again."
                        )
                indices, names, *cells = zip(*rows, strict=True)
                for part, column, (name, kind) in zip(
                    parts, (indices, *cells), {"index": np.int64, **types}.items(), strict=True
                ):
                    part.append(_numbers(column, kind, path, name, len(ids)))
                ids += [original(name) for name in names]
        except csv.Error as error:
            raise ValueError(
                f"{path} is damaged after index {len(ids) - 1}: {error}. Copy or write it again."
            ) from error
    if not _ends_with_line_end(path):
        raise ValueError(f"{path} is cut off: its last row has no line end. Copy or write it again.")
    index, *columns = (np.concatenate(part) for part in parts)
    return index, tuple(ids), dict(zip(types, columns, strict=True))


def harmless(name):
    """An id as a cell that no spreadsheet runs."""
    return f"'{name}" if FORMULA.match(name) else name


def original(cell):
    """The id of a cell."""
    return cell[1:] if cell.startswith("'") else cell


def _open(path):
    return open(path, encoding="utf-8", errors="surrogateescape", newline="")


def _read_head(file):
    """(title, facts, header row); leaves `file` at the first row."""
    title, facts = _line(file).removeprefix("# "), {}
    while (line := _line(file)).startswith("# "):
        name, _, text = line[2:].partition(": ")
        facts[name] = text
    return title, facts, line


def _line(file):
    return file.readline(LONGEST_LINE).rstrip("\r\n")


def _printable(column):
    if column.dtype.kind == "f":
        return np.round(column.astype(np.float64), DECIMALS).tolist()
    return column.tolist()


def _numbers(cells, kind, path, name, first):
    """Cells (text) of the rows from index `first` on as an array."""
    parse = float if np.issubdtype(kind, np.floating) else int
    try:
        with np.errstate(over="ignore"):  # becomes infinity, which no range admits
            return np.fromiter(map(parse, cells), kind, len(cells))
    except (ValueError, OverflowError) as error:
        index, cell = next((i, cell) for i, cell in enumerate(cells, first) if not _is_number(cell, parse, kind))
        wanted = "a whole number" if parse is int else "a number"
        raise ValueError(
            f"{path} has {cell[:40]!r} as {name} of index {index}, where {wanted} was expected. Write the file again."
        ) from error


def _is_number(cell, parse, kind):
    try:
        kind(parse(cell))
    except (ValueError, OverflowError):
        return False
    return True


def _ends_with_line_end(path):
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"
