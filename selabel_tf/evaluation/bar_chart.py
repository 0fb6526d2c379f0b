"""Bars as SVG, in the manner of `line_chart`: upright ones for a histogram, lying ones for named values."""

import html

import numpy as np

from .line_chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, nice_ticks

BINS = 24
LINE = 26


def histogram_of(values) -> tuple[np.ndarray, np.ndarray]:
    """(counts [B], edges [B + 1]) of whole numbers, with edges between whole numbers and at most BINS bins."""
    low, high = int(np.min(values)), int(np.max(values))
    width = max(1, -(-(high - low + 1) // BINS))
    edges = np.arange(low, high + width + 1, width) - 0.5
    return np.histogram(values, edges)[0], edges


def histogram(values, title, across) -> str:
    """How often whole numbers occur. across: what the horizontal axis counts."""
    counts, edges = histogram_of(values)
    ticks = nice_ticks(0, max(1, int(counts.max())))
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    floor = HEIGHT - BOTTOM
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" class="chart" role="img" aria-label="{html.escape(title)}">']
    for tick in ticks:
        at = f"{floor - tall * tick / ticks[-1]:.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{at}" dy=".32em" text-anchor="end">{tick:g}</text>')
    step = wide / len(counts)
    for bin_, count in enumerate(counts):
        height = tall * count / ticks[-1]
        parts.append(
            f'<rect class="bar" x="{LEFT + bin_ * step + 0.75:.1f}" y="{floor - height:.1f}" '
            f'width="{max(step - 1.5, 0.5):.1f}" height="{height:.1f}"/>'
        )
    for bin_ in sorted({0, len(counts) // 2, len(counts) - 1}):
        middle = (edges[bin_] + edges[bin_ + 1]) / 2
        parts.append(
            f'<text class="tick" x="{LEFT + (bin_ + 0.5) * step:.1f}" y="{floor + 15}" text-anchor="middle">'
            f"{middle:g}</text>"
        )
    parts.append(
        f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{html.escape(across)}</text>'
    )
    return "".join([*parts, "</svg>"])


def named(pairs, title) -> str:
    """(name, share of 1) as lying bars with their value beside them."""
    height = LINE * len(pairs) + 6
    left, right = 116, 48
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" class="chart" role="img" aria-label="{html.escape(title)}">']
    for line, (name, value) in enumerate(pairs):
        top = LINE * line + 4
        width = max(1.0, (WIDTH - left - right) * min(max(value, 0.0), 1.0))
        shown = name if len(name) <= 17 else name[:16] + "…"
        parts.append(
            f'<text class="tick" x="{left - 6}" y="{top + 9}" dy=".32em" text-anchor="end">{html.escape(shown)}</text>'
            f'<rect class="bar" x="{left}" y="{top}" width="{width:.1f}" height="18" rx="2"/>'
            f'<text class="tick" x="{left + width + 6:.1f}" y="{top + 9}" dy=".32em">{100 * value:.1f}%</text>'
        )
    return "".join([*parts, "</svg>"])
