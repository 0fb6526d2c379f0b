"""The charts of a report as PNG files, and the numbers behind everything as CSV files, in a folder.

<curve>.png, <curve>.csv        a row per epoch or label pass, a column per line
cluster_sizes.png               clusters.csv: head, cluster, size, and what else is known of it
filters.png                     map.csv: index, name, class, and two coordinates per method
neighbours.csv                  query, how, rank, index
"""

import csv
import io
from pathlib import Path

import numpy as np

from ..atomic_file import write_atomically
from . import figures

COLUMNS = ("sizes", "common", "purity", "entropy", "confidence")


def write(folder, contents) -> Path:
    """Writes all files of one RunContents; the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for curve in contents.curves:
        write_atomically(folder / f"{curve.key}.png", figures.curve(curve))
        rows = np.column_stack([curve.epochs, curve.values]).tolist()
        _csv(folder / f"{curve.key}.csv", ("epoch", *curve.names), rows)
    sizes = np.concatenate([summary.sizes for summary in contents.training.heads])
    write_atomically(folder / "cluster_sizes.png", figures.histogram(sizes, "Cluster sizes", "images in a cluster"))
    _csv(folder / "clusters.csv", ("head", "cluster", "size", *COLUMNS[1:], "nearest"), _clusters(contents))
    if contents.filters is not None:
        write_atomically(folder / "filters.png", figures.png(contents.filters))
    for number, (title, pairs) in enumerate(contents.probes):
        write_atomically(folder / f"probes_{number}.png", figures.bars(pairs, title))
        _csv(folder / f"probes_{number}.csv", ("layer", "accuracy"), pairs)
    if contents.map is not None:
        _csv(folder / "map.csv", *_map(contents))
    if contents.neighbours is not None:
        _csv(folder / "neighbours.csv", ("query", "by", "rank", "index"), _neighbours(contents.neighbours))
    return folder


def _clusters(contents):
    for head, summary in enumerate(contents.training.heads):
        columns = [getattr(summary, name) for name in COLUMNS]
        for cluster in range(len(summary.sizes)):
            values = [None if column is None else column[cluster] for column in columns]
            near = "" if summary.nearest is None else " ".join(str(k) for k in summary.nearest[cluster] if k >= 0)
            yield head, cluster, *values, near


def _map(contents):
    found, images = contents.map, contents.training
    header = ["index", "name", "class", *(f"{method} {axis}" for method in found.points for axis in "xy")]
    points = np.concatenate(list(found.points.values()), axis=1)
    classes = [None] * len(found.rows) if images.classes is None else images.classes[found.rows]
    rows = zip(found.rows, classes, points.tolist(), strict=True)
    return header, [(row, images.ids[row], klass, *where) for row, klass, where in rows]


def _neighbours(found):
    for by, table in (("features", found.by_features), ("pixels", found.by_pixels)):
        for query, rows in zip(found.queries, table, strict=True):
            yield from ((query, by, rank, row) for rank, row in enumerate(rows, start=1))


def _csv(path, header, rows):
    """Nothing and NaN are empty cells; text that a spreadsheet would run as a formula begins with an apostrophe."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_cell(value) for value in header])
    writer.writerows([_cell(value) for value in row] for row in rows)
    write_atomically(path, buffer.getvalue())


def _cell(value):
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return f"{value:.6g}" if isinstance(value, float | np.floating) else value
