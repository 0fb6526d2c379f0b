"""The report: one HTML file that holds its data, pictures, style and script, and asks the network for nothing.

A content security policy in the page forbids requests, whatever the data may contain. Large parts lie in the page as
text and are read when first wanted: labels and numbers of a head when it is looked at, a sheet of thumbnails when one
of its images is shown. All text goes through Jinja2's autoescape, or into JSON blocks in which "<", ">" and "&" are
escaped.

Numbers are packed as little-endian bytes in base64: an index or a label costs two to four bytes and no parsing.
"""

import base64
import json
import math
from importlib import resources

import jinja2
import markupsafe
import numpy as np

from selabel_tf.atomic_file import write_atomically

from . import bar_chart, figures, line_chart, sprites
from . import curves as curve_panels
from .report import Table

MEANS = {"sizes": 0, "common": 0, "purity": 4, "entropy": 3, "confidence": 3, "nearest": 0}  # name -> decimals
ROWS = 500  # of a curve's table: more are thinned out, evenly
SCRIPTS = ("report_data.js", "report_clusters.js", "report_views.js")
TILES = 6  # highlights in a row, at most


def write(path, runs, *, title):
    """Writes the page of one or two `runs` (RunContents) to `path`."""
    write_atomically(path, render(runs, title=title))


def title_of(*names) -> str:
    return f"Self-labelling: {' and '.join(names)}"


def render(runs, *, title) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("selabel_tf.evaluation"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        title=title,
        runs=[_panels(contents) for contents in runs],
        names=_distinct([contents.name for contents in runs]),
        charts=_charts(runs),
        facts=_side_by_side(runs),
        blocks=[block for number, contents in enumerate(runs) for block in _blocks(number, contents)],
        style=markupsafe.Markup(_file("report.css")),
        script=markupsafe.Markup("\n".join(map(_file, SCRIPTS))),
    )


def in_script(value) -> markupsafe.Markup:
    """`value` as JSON that is safe inside a <script> element of any kind."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return markupsafe.Markup(text)


def pack(values, kind) -> markupsafe.Markup:
    """Numbers as base64 of little-endian `kind` ("u1", "u2", "i4")."""
    return markupsafe.Markup(base64.b64encode(np.ascontiguousarray(values, f"<{kind}").tobytes()).decode("ascii"))


def _file(name):
    return resources.files("selabel_tf.evaluation").joinpath("templates", name).read_text("utf-8")


def _distinct(names):
    return names if len(set(names)) == len(names) else [f"{name} ({place})" for place, name in enumerate(names, 1)]


def _panels(contents):
    """What the template shows of one run."""
    sizes = np.concatenate([summary.sizes for summary in contents.training.heads])
    return {
        "contents": contents,
        "has_classes": contents.training.classes is not None,
        "has_confidence": contents.training.heads[0].confidence is not None,
        "filters": _uri(contents.filters),
        "sizes": (
            bar_chart.histogram(sizes, "Cluster sizes, all heads", "images in a cluster"),
            _size_table(contents),
        ),
        "probes": [
            (title, bar_chart.named(pairs, title), Table(title, ("layer", "accuracy"), pairs))
            for title, pairs in contents.probes
        ],
        "columns": math.ceil(len(contents.highlights) / max(1, math.ceil(len(contents.highlights) / TILES))),
    }


def _uri(pixels):
    if pixels is None:
        return None
    return "data:image/png;base64," + base64.b64encode(figures.png(pixels)).decode("ascii")


def _size_table(contents):
    rows = []
    for head, summary in enumerate(contents.training.heads):
        sizes = summary.sizes
        rows.append((f"head {head}", len(sizes), int(sizes.min()), float(np.median(sizes)), int(sizes.max())))
    counts, edges = bar_chart.histogram_of(np.concatenate([summary.sizes for summary in contents.training.heads]))
    bins = zip(counts, edges[:-1], edges[1:], strict=True)
    spans = [(f"{math.ceil(low)} to {math.floor(high)} images", int(count)) for count, low, high in bins]
    return (
        Table("Sizes by head", ("", "clusters", "smallest", "median", "largest"), tuple(rows)),
        Table("The histogram", ("size", "clusters"), tuple(spans)),
    )


def _charts(runs):
    """The curves of all runs by quantity: title, note, SVG, last values, a table for each run."""
    keys = dict.fromkeys(curve.key for contents in runs for curve in contents.curves)
    names = _distinct([contents.name for contents in runs])
    end = max((float(curve.epochs.max()) for contents in runs for curve in contents.curves), default=0.0)
    charts = []
    for key in keys:
        curves = [next((c for c in contents.curves if c.key == key), None) for contents in runs]
        first = next(curve for curve in curves if curve is not None)
        tables = [curve_table(curve, name) for curve, name in zip(curves, names, strict=True) if curve is not None]
        strong = first.strong if len(first.strong) > 1 else ()
        charts.append(
            {
                "key": key,
                "minor": key not in curve_panels.PAPER,
                "last": [
                    (run, _short(curve.last(curve.strong[0])))
                    for run, curve in enumerate(curves)
                    if curve is not None and len(curve.strong) == 1
                ],
                "title": first.title,
                "note": first.note,
                "svg": markupsafe.Markup(line_chart.svg(curves, end)),
                "tables": tables,
                "lines": list(zip(strong, line_chart.DASHES, strict=False)),
                "thin": len(first.names) > len(first.strong),
            }
        )
    return charts


def _short(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def curve_table(curve, name="", most=ROWS) -> Table:
    """The numbers of a curve; of more than `most` points an even selection, the last one included."""
    places = np.unique(np.linspace(0, len(curve.epochs) - 1, min(most, len(curve.epochs))).round().astype(int))
    rows = [
        (f"{curve.epochs[t]:.4g}", *(None if math.isnan(v) else f"{v:.4g}" for v in curve.values[t])) for t in places
    ]
    note = f"{len(places)} of {len(curve.epochs)} points." if len(places) < len(curve.epochs) else ""
    return Table(f"{curve.title}: {name}", ("epoch", *curve.names), tuple(rows), note)


def _side_by_side(runs):
    keys = dict.fromkeys(key for contents in runs for key in contents.facts)
    return [(key, [contents.facts.get(key) for contents in runs]) for key in keys]


def _blocks(number, contents):
    """(id, type, text) of the data blocks of one run."""
    prefix = f"r{number}"
    sets = contents.image_sets
    for key, images in sets.items():
        place = f"{prefix}-{key}"
        for head, column in enumerate(np.asarray(images.labels).T):
            yield f"{place}-labels-{head}", "text/plain", pack(column, _width(contents.num_clusters[head]))
            yield f"{place}-head-{head}", "application/json", in_script(_summary(images.heads[head]))
        if images.classes is not None:
            yield f"{place}-classes", "text/plain", pack(images.classes, "i4")
        yield f"{place}-shown", "text/plain", pack(images.shown, "i4")
        if images.confidence is not None:
            yield f"{place}-sure", "text/plain", pack(np.rint(255 * np.clip(images.confidence, 0, 1)), "u1")
        if not _plain(images.ids):
            common = _common_prefix(images.ids)
            block = {"prefix": common, "rest": [name[len(common) :] for name in images.ids]}
            yield f"{place}-ids", "application/json", in_script(block)
        if images.tiles is not None:
            for sheet, data in enumerate(sprites.sheets(images.tiles)):
                yield f"{place}-sheet-{sheet}", "text/plain", markupsafe.Markup(base64.b64encode(data).decode("ascii"))
    if contents.map is not None:
        points = {name: np.round(where, 4).tolist() for name, where in contents.map.points.items()}
        yield f"{prefix}-map", "application/json", in_script({"rows": contents.map.rows.tolist(), "points": points})
    if contents.neighbours is not None:
        found = contents.neighbours
        block = {name: getattr(found, name).tolist() for name in ("queries", "by_features", "by_pixels")}
        yield f"{prefix}-neighbours", "application/json", in_script(block)
    yield prefix, "application/json", in_script(_meta(contents, sets))


def _meta(contents, sets):
    return {
        "name": contents.name,
        "clusters": list(contents.num_clusters),
        "classNames": contents.class_names,
        "sets": {
            key: {
                "name": images.name,
                "count": len(images.labels),
                "tile": 0 if images.tiles is None else images.tiles.shape[1],
                "across": sprites.ACROSS,
            }
            for key, images in sets.items()
        },
    }


def _summary(summary):
    """A ClusterSummary as lists; NaN as null."""
    found = {name: getattr(summary, name) for name in MEANS}
    return {name: None if v is None else _rounded(v, MEANS[name]) for name, v in found.items()}


def _rounded(values, decimals):
    if values.dtype.kind in "iu":
        return values.tolist()
    return [None if math.isnan(value) else round(value, decimals) for value in values.tolist()]


def _width(num_clusters):
    return "u2" if num_clusters <= 65536 else "i4"


def _common_prefix(names):
    """What all names begin with: it is that of the first and the last of them."""
    first, last = min(names), max(names)
    return first[
        : next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    ]


def _plain(ids):
    """Whether the ids are the indices themselves: then the page need not hold them."""
    return all(name == str(index) for index, name in enumerate(ids))
