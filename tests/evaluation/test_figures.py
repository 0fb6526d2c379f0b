import io

import numpy as np
import pytest
from PIL import Image

from selabel_tf.evaluation import figures
from selabel_tf.evaluation.curves import Curve


def pixels(png):
    """PNG bytes -> uint8 [height, width, 3]."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


@pytest.fixture
def drawn(monkeypatch):
    """The matplotlib figures behind the PNG files, in the order they were made."""
    made, encode = [], figures._png_of_figure
    monkeypatch.setattr(figures, "_png_of_figure", lambda figure: made.append(figure) or encode(figure))
    return made


def some_curve(**changes):
    values = np.array([[0.1, 0.2, 0.15], [0.4, np.nan, 0.35]])
    parts = {"names": ("head 0", "head 1", "mean"), "strong": ("mean",), "reference": None} | changes
    return Curve("nmi", "cash $ or $", "", np.array([0.0, 7.0]), values, **parts)


def test_a_curve_draws_every_line_through_its_points(drawn):
    first = figures.curve(some_curve(reference=("ln K", 3.0)))
    (axes,) = drawn[0].axes
    assert axes.get_title(loc="left") == "cash $ or $"
    *lines, level = axes.lines
    np.testing.assert_allclose(lines[0].get_xydata(), [[0, 0.1], [7, 0.4]])
    np.testing.assert_allclose(lines[1].get_xydata(), [[0, 0.2]])
    assert lines[2].get_alpha() > lines[0].get_alpha()
    assert set(level.get_ydata()) == {3.0}
    assert pixels(first).ndim == 3
    assert figures.curve(some_curve(reference=("ln K", 3.0))) == first  # the same bytes each time


def test_several_strong_lines_are_named(drawn):
    figures.curve(some_curve(strong=("head 0", "head 1")))
    assert [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()] == ["head 0", "head 1"]


def test_a_histogram_and_bars_are_as_high_as_their_numbers(drawn):
    figures.histogram([3, 3, 4, 7], "Sizes", "images")
    assert [bar.get_height() for bar in drawn[0].axes[0].patches] == [2, 1, 0, 0, 1]
    figures.bars([("conv1", 0.25), ("$conv$", 0.5)], "Probe")
    assert [bar.get_width() for bar in drawn[1].axes[0].patches] == [0.25, 0.5]
    assert [label.get_text() for label in drawn[1].axes[0].get_yticklabels()] == ["conv1", "$conv$"]


def test_filters_are_stretched_one_by_one_and_set_in_a_grid():
    kernel = np.random.default_rng(1).normal(size=(3, 5, 3, 7)).astype(np.float32)
    kernel[..., 6] = 0.25
    picture = figures.filters(kernel)
    height, width, gap = 24, 40, 4  # 3 x 5 enlarged eight times
    assert picture.dtype == np.uint8
    assert picture.shape == (3 * height + 2 * gap, 3 * width + 2 * gap, 3)
    for number in range(7):
        top, left = (number // 3) * (height + gap), (number % 3) * (width + gap)
        cell = picture[top : top + height, left : left + width]
        one = kernel[..., number].astype(np.float64)
        expected = np.full_like(one, 127.5) if number == 6 else 255 * (one - one.min()) / np.ptp(one)
        np.testing.assert_allclose(cell, np.kron(expected, np.ones((8, 8, 1))), atol=0.51)
    assert (picture[-height:, width + gap :] == 128).all()  # places without a filter
    assert (picture[height : height + gap] == 128).all()


@pytest.mark.parametrize(("count", "columns"), [(16, 4), (32, 8), (64, 8), (96, 12), (7, 3), (2, 2)])
def test_filters_fill_whole_rows_where_they_can(count, columns):
    picture = figures.filters(np.random.default_rng(0).normal(size=(3, 3, 1, count)))
    assert picture.shape[1] == columns * 28 - 4


def test_one_filter_of_one_channel_is_a_picture_too():
    picture = figures.filters(np.arange(25.0).reshape(5, 5, 1, 1))
    assert picture.shape == (25, 25, 1)


@pytest.mark.parametrize("shape", [(3, 3, 2, 7), (3, 3, 3), (3, 3, 1, 0)])
def test_what_is_no_first_layer_is_refused(shape):
    with pytest.raises(ValueError, match=r"kernel has shape .*, expected \[height, width, 1 or 3, filters\]"):
        figures.filters(np.zeros(shape))


@pytest.mark.parametrize("channels", [1, 3])
def test_png_keeps_every_pixel(channels):
    image = np.random.default_rng(2).integers(256, size=(11, 13, channels), dtype=np.uint8)
    np.testing.assert_array_equal(pixels(figures.png(image)), np.broadcast_to(image, (11, 13, 3)))
