"""Accuracy against the number of labelled images: which images are labelled, the table, and the picture.

The labelled part of a set has the same share of every class, and a larger part of the same seed contains a smaller:

    rank = a permutation of all images, a function of the seed
    labelled = of every class c the round(fraction * N_c) images of lowest rank
"""

import io

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter
from scipy.optimize import isotonic_regression

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
    """PNG: a line for each method over the number of labelled images, its name and last value at its end.

    Bars are the deviation between seeds; methods stand a little beside each other, so that bars do not cover bars.
    """
    buffer = io.BytesIO()
    figure(rows, title).savefig(buffer, format="png")
    return buffer.getvalue()


def figure(rows, title="") -> Figure:
    if not rows:
        raise ValueError("There is nothing to draw: no accuracy was measured.")
    drawn = Figure(figsize=(6.4, 4.2), dpi=150)
    axes = drawn.add_subplot()
    methods = list(dict.fromkeys(row["method"] for row in rows))
    ends = []
    for number, method in enumerate(methods):
        own = [row for row in rows if row["method"] == method]
        colour = COLOURS[number % len(COLOURS)]
        beside = 1.02 ** (number - (len(methods) - 1) / 2)  # a factor, since the axis is logarithmic
        axes.errorbar(
            [beside * row["labelled"] for row in own],
            [row["top1"] for row in own],
            yerr=[row["deviation"] or 0.0 for row in own] if own[0]["seeds"] > 1 else None,
            color=colour,
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            linewidth=1.6,
            elinewidth=1,
            capsize=3,
        )
        ends.append((own[-1]["top1"], f"{method} {100 * own[-1]['top1']:.1f}%", colour))
    shares = {row["labelled"]: row["fraction"] for row in rows}
    axes.set_xscale("log")
    axes.set_xticks(list(shares), [f"{count:,}\n{100 * share:.4g}%" for count, share in shares.items()])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("labelled images, and their share of all", color=INK)
    axes.set_ylabel("top-1 accuracy on test images", color=INK)
    axes.set_title(title, color=INK, fontsize=11, loc="left")
    axes.grid(color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(RULE)
    least, most = axes.get_ylim()
    heights = _apart([end[0] for end in ends], 0.055 * (most - least))
    for height, (_, words, colour) in zip(heights, ends, strict=True):
        axes.text(1.02, height, words, transform=axes.get_yaxis_transform(), color=colour, va="center", fontsize=9)
    drawn.tight_layout()
    return drawn


def _apart(heights, least) -> np.ndarray:
    """`heights`, moved up and down as little as puts `least` between neighbours, in the order given."""
    order = np.argsort(heights, kind="stable")
    # sorted heights minus i * least must not decrease: the nearest such sequence is isotonic regression
    level = np.arange(len(order)) * least
    moved = isotonic_regression(np.asarray(heights, np.float64)[order] - level).x + level
    return moved[np.argsort(order)]
