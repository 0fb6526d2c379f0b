"""Charts as SVG: every point at its place, every number reachable."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from selabel_tf.evaluation import bar_chart, line_chart
from selabel_tf.evaluation.curves import Curve


def curve(epochs, values, **changes):
    values = np.array(values, np.float64)
    names = tuple(f"line {i}" for i in range(values.shape[1]))
    parts = {"key": "k", "title": "A title", "note": "", "names": names, "strong": names[:1]} | changes
    return Curve(epochs=np.array(epochs, np.float64), values=values, **parts)


def lines(text):
    found = ElementTree.fromstring(text).iter("polyline")
    return [
        (line.get("class"), [tuple(map(float, p.split(","))) for p in line.get("points").split()]) for line in found
    ]


def test_points_lie_on_straight_lines_where_the_numbers_do():
    drawn = lines(line_chart.svg([curve([0, 1, 2, 4], [[0, 8], [1, 6], [2, 4], [4, 0]])]))
    assert [name for name, _ in drawn] == ["thin run0", "strong run0"]  # strong ones are drawn last
    rising, falling = drawn[1][1], drawn[0][1]
    x, y = np.array(rising).T
    np.testing.assert_allclose(np.diff(x) / np.diff(y), (x[1] - x[0]) / (y[1] - y[0]), rtol=0.02)
    assert y[0] > y[-1]  # up is up
    assert falling[0][1] < falling[-1][1]


def test_gaps_are_left_out_and_a_level_is_drawn():
    text = line_chart.svg([curve([0, 1, 2], [[1.0], [np.nan], [3.0]], reference=("ln <K>", 3.5))])
    assert len(lines(text)[0][1]) == 2
    assert "ln &lt;K&gt; = 3.5" in text


def test_two_runs_share_a_chart_and_one_may_be_missing():
    both = lines(line_chart.svg([curve([0, 1], [[1], [2]]), curve([0, 5], [[1], [3]])]))
    assert [name for name, _ in both] == ["strong run0", "strong run1"]
    assert both[0][1][1][0] < both[1][1][1][0]
    assert [name for name, _ in lines(line_chart.svg([None, curve([0, 1], [[1], [2]])]))] == ["strong run1"]


@pytest.mark.parametrize("values", [[[5.0]], [[0.0]], [[-2.0]], [[1e-9]], [[3.0], [3.0]]])
def test_flat_and_single_points_are_drawn_inside_the_chart(values):
    ((_, points),) = lines(line_chart.svg([curve(range(len(values)), values)]))
    for x, y in points:
        assert 0 <= x <= line_chart.WIDTH and 0 <= y <= line_chart.HEIGHT


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.13, 0.92), (-3, 7), (0, 1797), (2e-7, 3e-7)])
def test_ticks_are_round_and_cover_the_range(low, high):
    ticks = line_chart.nice_ticks(low, high)
    assert ticks[0] <= low and ticks[-1] >= high * (1 - 1e-9)
    assert 3 <= len(ticks) <= 8
    assert len({f"{step:.6g}" for step in np.diff(ticks)}) == 1


@pytest.mark.parametrize(
    ("end", "ticks"),
    [(12, [0, 2, 4, 6, 8, 10, 12]), (11, [0, 2, 4, 6, 8, 10]), (1, [0, 1]), (400, [0, 100, 200, 300, 400])],
)
def test_epochs_are_counted_in_whole_ones(end, ticks):
    assert line_chart.epoch_ticks(end) == ticks


def test_charts_of_one_page_end_at_the_same_epoch():
    alone, beside = (lines(line_chart.svg([curve([0, 1, 2], [[1], [2], [3]])], end))[0][1] for end in (0, 4))
    width = line_chart.WIDTH - line_chart.LEFT - line_chart.RIGHT
    assert alone[-1][0] - alone[0][0] == pytest.approx(width, abs=0.2)
    assert beside[-1][0] - beside[0][0] == pytest.approx(width / 2, abs=0.2)


def test_a_point_tells_its_numbers():
    text = line_chart.svg([curve([0, 2.5], [[1.0], [0.1234]], names=("a <b>",), strong=("a <b>",))])
    told = [title.text for title in ElementTree.fromstring(text).iter("title")]
    assert told == ["a <b>, epoch 0: 1", "a <b>, epoch 2.5: 0.1234"]


def test_a_histogram_counts_every_value_once():
    values = np.random.default_rng(0).integers(3, 101, size=997)
    counts, edges = bar_chart.histogram_of(values)
    assert counts.sum() == 997 and len(counts) <= bar_chart.BINS
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        assert count == np.sum((values > low) & (values < high))
    bars = [
        float(bar.get("height")) for bar in ElementTree.fromstring(bar_chart.histogram(values, "t", "x")).iter("rect")
    ]
    np.testing.assert_allclose(np.array(bars) / max(bars), counts / counts.max(), atol=0.01)
    one, _ = bar_chart.histogram_of([7, 7])
    np.testing.assert_array_equal(one, [2])


def test_named_bars_carry_their_values_and_names_are_escaped():
    text = bar_chart.named([("<b>conv1</b>", 0.25), ("conv2", 0.5)], "Probe & co")
    widths = [float(bar.get("width")) for bar in ElementTree.fromstring(text).iter("rect")]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)
    assert re.findall(r"\d+\.\d%", text) == ["25.0%", "50.0%"]
    assert "<b>" not in text
