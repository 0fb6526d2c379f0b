"""A curve as SVG: drawn with classes of the page's style, so that it follows light and dark.

Several runs share a chart; the lines of run r have the class `run<r>`.
"""

import html
import math

import numpy as np

WIDTH, HEIGHT = 380, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 32
DASHES = ("", "5 3", "1.5 3")  # tell strong lines of one chart apart without colour


def svg(curves, end=0.0) -> str:
    """One chart of the curves (the same quantity, a Curve for each run; None where a run has none), to epoch `end`."""
    present = [(run, curve) for run, curve in enumerate(curves) if curve is not None]
    levels = [curve.reference for _, curve in present if curve.reference]
    low, high = _range([curve.values for _, curve in present], [height for _, height in levels])
    end = max(end, *(float(curve.epochs.max()) for _, curve in present)) or 1.0
    ticks, across = nice_ticks(low, high), epoch_ticks(end)
    low, high = min(low, ticks[0]), max(high, ticks[-1])

    def x(epoch):
        return LEFT + (WIDTH - LEFT - RIGHT) * epoch / end

    def y(value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    title = present[0][1].title
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" class="chart" role="img" aria-label="{html.escape(title)}">']
    for tick in ticks:
        at = f"{y(tick):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{at}" dy=".32em" text-anchor="end">{_text(tick)}</text>')
    for tick in across:
        parts.append(
            f'<text class="tick" x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{_text(tick)}</text>'
        )
    parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">epoch</text>')
    for name, height in dict.fromkeys(levels):
        at = y(height)
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{WIDTH - RIGHT}" y="{at - 4 if at > TOP + 12 else at + 12:.1f}" text-anchor="end">'
            f"{html.escape(name)} = {height:.4g}</text>"
        )
    for run, curve in present:
        parts += _lines(run, curve, x, y)
    return "".join([*parts, "</svg>"])


def nice_ticks(low, high, most=5) -> list[float]:
    """Round numbers from at most `low` on to at least `high`, about `most` of them."""
    span = high - low or abs(high) or 1.0
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def epoch_ticks(end, most=6) -> list[float]:
    """From 0 to at most `end`: whole epochs, at most `most` steps of them; fractions where there is no whole epoch."""
    if end < 1:
        return [tick for tick in nice_ticks(0.0, end, most) if tick <= end]
    steps = (factor * 10**power for power in range(9) for factor in (1, 2, 5))
    step = next(step for step in steps if end / step <= most)
    return [float(tick) for tick in range(0, math.floor(end) + 1, step)]


def _lines(run, curve, x, y):
    order = sorted(range(len(curve.names)), key=lambda line: curve.names[line] in curve.strong)  # strong ones on top
    for line in order:
        column = curve.values[:, line]
        there = np.isfinite(column)
        points = [(x(epoch), y(value)) for epoch, value in zip(curve.epochs[there], column[there], strict=True)]
        if not points:
            continue
        name = curve.names[line]
        weight, dash = "thin", ""
        if name in curve.strong:
            weight, dash = "strong", DASHES[curve.strong.index(name) % len(DASHES)]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        yield f'<polyline class="{weight} run{run}"{dashed} points="{path}"/>'
        if weight == "strong" and len(points) <= 40:
            told = [f"{name}, epoch {epoch:.4g}: {column[t]:.4g}" for t, epoch in enumerate(curve.epochs) if there[t]]
            for (a, b), words in zip(points, told, strict=True):
                yield f'<circle class="dot run{run}" cx="{a:.1f}" cy="{b:.1f}" r="2.5">'
                yield f"<title>{html.escape(words)}</title></circle>"


def _range(values, levels):
    finite = np.concatenate([v[np.isfinite(v)] for v in values] + [np.array(levels, np.float64)])
    low, high = float(finite.min()), float(finite.max())
    if 0 <= low < 0.6 * high or 0 < low == high:
        low = 0.0  # a scale that begins at zero, unless it would flatten the curve
    return (low, high) if high > low else (low - abs(low or 1.0) / 2, high + abs(high or 1.0) / 2)


def _text(value):
    return f"{value:.4g}"
