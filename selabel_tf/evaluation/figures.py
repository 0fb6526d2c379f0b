"""Pictures of a run as files: how the labels came about, what the first layer looks for.

Drawn with matplotlib's objects alone: no pyplot, so no global state, no window and no backend to choose.
"""

import io
import math

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from . import bar_chart

INK, MUTED, RULE, ACCENT = "#1f2933", "#66727f", "#e3e7eb", "#1d6fb8"
LINES = ("-", "--", ":")
GROUND = 128  # between filters, which have black and white in them
FILTER_PIXELS = 24  # a 3x3 filter is too small to see: enlarge to at least this side


def curve(curve) -> bytes:
    """PNG of a Curve: strong lines over thin ones, and its reference level."""
    figure, axes = _chart(curve.title, "epoch")
    for line, name in enumerate(curve.names):
        there = np.isfinite(curve.values[:, line])
        strong = name in curve.strong
        axes.plot(
            curve.epochs[there],
            curve.values[there, line],
            color=ACCENT,
            alpha=1.0 if strong else 0.25,
            linewidth=1.8 if strong else 0.8,
            linestyle=LINES[curve.strong.index(name) % len(LINES)] if strong else "-",
            label=name if strong and len(curve.strong) > 1 else None,
            zorder=3 if strong else 2,
        )
    if curve.reference is not None:
        name, height = curve.reference
        axes.axhline(height, color=MUTED, linewidth=0.8, linestyle=":", label=f"{name} = {height:.3g}")
    if curve.reference is not None or len(curve.strong) > 1:
        axes.legend(fontsize=8, frameon=False, labelcolor=MUTED)
    return _png_of_figure(figure)


def histogram(values, title, across) -> bytes:
    """PNG: how often whole numbers occur, in the bins of `bar_chart`."""
    counts, edges = bar_chart.histogram_of(values)
    figure, axes = _chart(title, across)
    axes.bar(edges[:-1], counts, np.diff(edges) * 0.92, align="edge", color=ACCENT)
    return _png_of_figure(figure)


def bars(pairs, title) -> bytes:
    """PNG of (name, share of 1) as lying bars, the first on top."""
    figure, axes = _chart(title, "accuracy")
    names, values = zip(*pairs, strict=True)
    axes.barh(range(len(names)), values, color=ACCENT)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
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
    return _montage(cells, columns=_columns(len(cells)), gap=FILTER_PIXELS // 6, fill=GROUND)


def png(image) -> bytes:
    """`image` uint8 [height, width, 1 or 3] as the bytes of a PNG file."""
    return tf.io.encode_png(image).numpy()


def _columns(count):
    """Of a grid of `count` cells, as wide as high or a little wider: full rows if possible, e.g. 8 for 32."""
    least = math.ceil(math.sqrt(count))
    return next((columns for columns in range(least, 2 * least) if count % columns == 0), least)


def _montage(cells, columns, gap, fill):
    """cells [n, h, w, c] in rows of `columns`, `gap` pixels of `fill` between them: [H, W, c]."""
    lines = math.ceil(len(cells) / columns)
    _, height, width, channels = cells.shape
    grid = np.full((lines * columns, height + gap, width + gap, channels), fill, cells.dtype)
    grid[: len(cells), :height, :width] = cells
    grid = grid.reshape(lines, columns, height + gap, width + gap, channels).swapaxes(1, 2)
    return grid.reshape(lines * (height + gap), columns * (width + gap), channels)[:-gap, :-gap]


def _chart(title, across):
    figure = Figure(figsize=(4.6, 3.0), dpi=150, facecolor="white", layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=10, color=INK, weight="bold", parse_math=False)
    axes.set_xlabel(across, fontsize=9, color=MUTED)
    axes.tick_params(labelsize=8, colors=MUTED, length=0)
    axes.grid(color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    return figure, axes


def _png_of_figure(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})  # no version inside: same picture, same bytes
    return buffer.getvalue()
