"""Pictures of a run: what is in the clusters, how the labels came about, what the first layer looks for.

Drawn with matplotlib's objects alone: no pyplot, so no global state, no window and no backend to choose.
"""

import io
import math

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

INK, MUTED, RULE, ACCENT = "#1f2933", "#66727f", "#e3e7eb", "#1d6fb8"
CELL_INCHES = 0.46
FILTER_PIXELS = 24  # a 3x3 filter is too small to see: enlarge to at least this side
PANELS = {  # key in the records -> title, bottom and top of the axis
    "loss": ("Training loss", None, None),
    "nmi": ("NMI of labels and true classes", 0.0, None),
    "share_changed": ("Share of labels changed", 0.0, 1.0),
}


def sample_rows(labels, *, num_clusters_shown=20, per_cluster=12) -> np.ndarray:
    """Rows of the examples to show for `labels` [N]: int64, sorted by cluster, then index.

    Clusters and their examples are spread evenly, not chosen by how good they look. Only these images need to
    be loaded.
    """
    if num_clusters_shown < 1 or per_cluster < 1:
        raise ValueError(
            f"num_clusters_shown={num_clusters_shown} and per_cluster={per_cluster} must both be at least 1."
        )
    labels = np.asarray(labels)
    present = np.unique(labels)
    shown = (_spread(np.flatnonzero(labels == k), per_cluster) for k in _spread(present, num_clusters_shown))
    return np.concatenate(list(shown))


def clusters(images, rows, labels, *, classes=None, class_names=None) -> bytes:
    """PNG of a grid with one line per cluster.

    images: [n, h, w, c], values 0..1, the pictures of the examples `rows` [n] (see sample_rows).
    labels: [N] of the whole set, so that size and purity are those of the whole cluster.
    classes: [N] or None; class_names: the name of each class, or None.
    """
    images, rows, labels = np.asarray(images), np.asarray(rows), np.asarray(labels)
    if images.ndim != 4 or images.shape[-1] not in (1, 3) or len(images) != len(rows) or len(rows) == 0:
        raise ValueError(
            f"images have shape {images.shape}, expected [{len(rows)}, h, w, 1 or 3]: one image for each row."
        )
    if not (images.min() >= -1e-3 and images.max() <= 1 + 1e-3):
        raise ValueError(
            f"images have values from {images.min():.4g} to {images.max():.4g}, expected 0 to 1. "
            "Give the images before normalisation."
        )
    if classes is not None and len(classes) != len(labels):
        raise ValueError(
            f"There are {len(classes)} classes and {len(labels)} labels, expected one class for each label."
        )

    shown = np.unique(labels[rows])
    columns = max(np.count_nonzero(labels[rows] == k) for k in shown)
    blank = np.ones_like(images[:1])
    lines = []
    for k in shown:
        line = images[labels[rows] == k]
        lines += [line, np.repeat(blank, columns - len(line), axis=0)]
    height, width = images.shape[1:3]
    gap = max(1, height // 12)
    picture = _montage(np.concatenate(lines), columns, gap, fill=1.0)

    described = [_describe(labels == k, classes, class_names) for k in shown]
    margin, letter = 0.1, 0.069  # inches, as are all sizes here
    left = margin + max(0.9, letter * max(map(len, described)))
    grid_width, grid_height = columns * CELL_INCHES * width / height, len(shown) * CELL_INCHES
    full_width, full_height = left + grid_width + margin, grid_height + 2 * margin
    figure = _figure((full_width, full_height))
    axes = figure.add_axes(
        (left / full_width, margin / full_height, grid_width / full_width, grid_height / full_height)
    )
    picture = np.clip(picture if picture.shape[2] == 3 else picture[..., 0], 0, 1)
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, aspect="auto")
    axes.set_axis_off()
    for line, k in enumerate(shown):
        middle = (line * (height + gap) + height / 2) / len(picture)
        for offset, text, style in (
            (0.07, f"cluster {k}", {"color": INK, "weight": "bold", "size": 8.5}),
            (-0.09, described[line], {"color": MUTED, "size": 7.5}),
        ):
            y = 1 - (margin + middle * grid_height - offset) / full_height
            figure.text(margin / full_width, y, text, va="center", parse_math=False, **style)
    return _png_of_figure(figure)


def curves(records) -> bytes:
    """PNG with a panel for each of loss, nmi and share_changed that occurs in `records`, over training steps.

    records: dicts with "step" and any of those keys, in any mixture. A value is a number, or a list with one
    number for each head: then every head is a thin line and their mean a strong one.
    """
    series = {}
    for key in PANELS:
        points = [(record["step"], np.atleast_1d(record[key])) for record in records if key in record]
        if points:
            series[key] = [np.array(column, np.float64) for column in zip(*points, strict=True)]  # [T], [T, H]
    if not series:
        raise ValueError(f"No record has any of {', '.join(PANELS)}: there is nothing to draw.")

    figure = _figure((3.7 * len(series), 2.9), layout="constrained")
    for axes, (key, (steps, values)) in zip(
        figure.subplots(1, len(series), squeeze=False)[0], series.items(), strict=True
    ):
        title, bottom, top = PANELS[key]
        if values.shape[1] > 1:
            axes.plot(steps, values, color=ACCENT, alpha=0.25, linewidth=0.8)
        marker = "o" if len(steps) <= 40 else None
        axes.plot(
            steps,
            values.mean(axis=1),
            color=ACCENT,
            linewidth=1.8,
            marker=marker,
            markersize=3,
            clip_on=False,
        )
        axes.set_ylim(bottom, top)
        axes.set_title(title, loc="left", fontsize=10, color=INK, weight="bold")
        axes.set_xlabel("step", fontsize=9, color=MUTED)
        axes.tick_params(labelsize=8, colors=MUTED, length=0)
        axes.locator_params(axis="x", nbins=5)
        axes.grid(color=RULE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
    return _png_of_figure(figure)


def filters(kernel) -> np.ndarray:
    """First-layer filters `kernel` [kh, kw, c, F], c 1 or 3, as one image: uint8 [height, width, c].

    Each filter is stretched to the full range by itself (a constant one is gray), enlarged, set in a grid.
    """
    kernel = np.asarray(kernel, np.float32)
    if kernel.ndim != 4 or kernel.shape[2] not in (1, 3) or 0 in kernel.shape:
        raise ValueError(f"kernel has shape {kernel.shape}, expected [height, width, 1 or 3, filters].")
    cells = np.moveaxis(kernel, 3, 0)  # [F, kh, kw, c]
    low, high = cells.min(axis=(1, 2, 3), keepdims=True), cells.max(axis=(1, 2, 3), keepdims=True)
    spread = high - low
    cells = np.where(spread > 0, (cells - low) / np.where(spread > 0, spread, 1), 0.5)
    zoom = math.ceil(FILTER_PIXELS / min(kernel.shape[:2]))
    cells = np.rint(255 * cells).astype(np.uint8).repeat(zoom, axis=1).repeat(zoom, axis=2)
    return _montage(cells, columns=math.ceil(math.sqrt(len(cells))), gap=FILTER_PIXELS // 6, fill=255)


def png(image) -> bytes:
    """`image` uint8 [height, width, 1 or 3] as the bytes of a PNG file."""
    return tf.io.encode_png(image).numpy()


def _spread(values, count):
    """At most `count` of `values`, evenly spread, first and last included."""
    return values[np.linspace(0, len(values) - 1, min(count, len(values))).round().astype(np.int64)]


def _montage(cells, columns, gap, fill):
    """cells [n, h, w, c] in rows of `columns`, `gap` pixels of `fill` between them: [H, W, c]."""
    lines = math.ceil(len(cells) / columns)
    _, height, width, channels = cells.shape
    grid = np.full((lines * columns, height + gap, width + gap, channels), fill, cells.dtype)
    grid[: len(cells), :height, :width] = cells
    grid = grid.reshape(lines, columns, height + gap, width + gap, channels).swapaxes(1, 2)
    return grid.reshape(lines * (height + gap), columns * (width + gap), channels)[:-gap, :-gap]


def _describe(members, classes, class_names):
    """'89 images, mostly sheep (97%)': size, most common class (the smallest of equals) and its share."""
    size = np.count_nonzero(members)
    text = f"{size} image" if size == 1 else f"{size} images"
    if classes is None:
        return text
    values, counts = np.unique(np.asarray(classes)[members], return_counts=True)
    common = values[counts.argmax()]
    name = class_names[common] if class_names is not None else f"class {common}"
    name = name if len(name) <= 18 else name[:17] + "…"
    return f"{text}, mostly {name} ({100 * counts.max() / size:.0f}%)"


def _figure(inches, layout=None):
    return Figure(figsize=inches, dpi=150, facecolor="white", layout=layout)


def _png_of_figure(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})  # no version inside: same picture, same bytes
    return buffer.getvalue()
