"""Accuracy against the number of labelled images: which images are labelled, the table, and the picture.

The labelled part of a set has the same share of every class, and a larger part of the same seed contains a smaller:

    rank = a permutation of all images, a function of the seed
    labelled = of every class c the round(fraction * N_c) images of lowest rank
"""

import io

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

INK, MUTED, RULE = "#1f2933", "#66727f", "#e3e7eb"
COLOURS = ("#1d6fb8", "#c2571a", "#66727f", "#2c7a4b", "#8a4fa3")  # in the order of the methods
MARKERS = ("o", "s", "^", "D", "v")  # so that the picture can be read without its colours


def labelled_rows(classes, fraction, *, seed=0) -> np.ndarray:
    """The rows, sorted, of the images that are labelled; classes [N]."""
    classes = np.asarray(classes)
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction={fraction:g} is no share of the images. Use more than 0 and at most 1, e.g. 0.1.")
    values, counts = np.unique(classes, return_counts=True)
    if round(fraction * counts.min()) < 1:
        raise ValueError(
            f"A share of {fraction:g} leaves no image of class {values[counts.argmin()]}, which has {counts.min()}. "
            f"Use at least {np.ceil(1e4 / counts.min()) / 1e4:g}."
        )
    # Raw words of a counter-based generator: NumPy promises never to change them.
    words = np.random.Philox(key=[seed, 0]).random_raw(len(classes))
    order = np.argsort(words, kind="stable")
    chosen = [
        order[classes[order] == value][: round(fraction * count)] for value, count in zip(values, counts, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def summary(points) -> list[dict]:
    """One row for each method and fraction: the mean of top1 over seeds, and its deviation where there are several.

    points: {"method", "fraction", "labelled", "seed", "top1"} each. Rows keep the order in which methods first come,
    and the fractions of each increase.
    """
    rows = []
    for method in dict.fromkeys(point["method"] for point in points):
        own = [point for point in points if point["method"] == method]
        for fraction in sorted({point["fraction"] for point in own}):
            found = [point for point in own if point["fraction"] == fraction]
            values = [point["top1"] for point in found]
            rows.append(
                {
                    "method": method,
                    "fraction": fraction,
                    "labelled": found[0]["labelled"],
                    "seeds": len(values),
                    "top1": float(np.mean(values)),
                    "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
                }
            )
    return rows


def picture(rows, *, title="") -> bytes:
    """PNG: a line for each method over the number of labelled images, with the deviation between seeds as bars."""
    if not rows:
        raise ValueError("There is nothing to draw: no accuracy was measured.")
    figure = Figure(figsize=(6.4, 4.2), dpi=150)
    axes = figure.add_subplot()
    for number, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        own = [row for row in rows if row["method"] == method]
        axes.errorbar(
            [row["labelled"] for row in own],
            [row["top1"] for row in own],
            yerr=[row["deviation"] or 0.0 for row in own],
            label=method,
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            linewidth=1.6,
            capsize=3,
        )
    counts = sorted({row["labelled"] for row in rows})
    axes.set_xscale("log")
    axes.set_xticks(counts)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("labelled images", color=INK)
    axes.set_ylabel("top-1 accuracy on test images", color=INK)
    axes.set_title(title, color=INK, fontsize=11, loc="left")
    axes.grid(color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(RULE)
    axes.legend(frameon=False, labelcolor=INK)
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
