import io

import numpy as np
import pytest
from PIL import Image

from selabel_tf.evaluation import figures


def pixels(png):
    """PNG bytes -> uint8 [height, width, 3]."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


@pytest.fixture
def drawn(monkeypatch):
    """The matplotlib figures behind the PNG files, in the order they were made."""
    made, encode = [], figures._png_of_figure
    monkeypatch.setattr(figures, "_png_of_figure", lambda figure: made.append(figure) or encode(figure))
    return made


LABELS = np.array([4, 0, 4, 2, 0, 4, 2, 4, 4])
CLASSES = np.array([1, 0, 1, 0, 1, 1, 0, 0, 1])


def test_sampled_rows_are_sorted_by_cluster_and_spread_over_its_members():
    np.testing.assert_array_equal(figures.sample_rows(LABELS), [1, 4, 3, 6, 0, 2, 5, 7, 8])
    np.testing.assert_array_equal(figures.sample_rows(LABELS, per_cluster=3), [1, 4, 3, 6, 0, 5, 8])
    np.testing.assert_array_equal(figures.sample_rows(LABELS, num_clusters_shown=2, per_cluster=1), [1, 0])
    many = np.arange(1301) % 53
    rows = figures.sample_rows(many)
    np.testing.assert_array_equal(np.unique(many[rows], return_counts=True)[1], [12] * 20)
    assert {0, 52} < set(many[rows])


@pytest.mark.parametrize("wrong", [{"num_clusters_shown": 0}, {"per_cluster": 0}])
def test_an_empty_sample_is_refused(wrong):
    with pytest.raises(ValueError, match="must both be at least 1"):
        figures.sample_rows(LABELS, **wrong)


def test_each_line_of_the_picture_is_one_cluster():
    rows = figures.sample_rows(LABELS, per_cluster=3)
    colours = np.random.default_rng(0).integers(20, 220, size=(len(LABELS), 3))
    images = np.broadcast_to(colours[:, None, None] / 255, (len(LABELS), 13, 11, 3))
    picture = pixels(figures.clusters(images[rows], rows, LABELS))

    def centre(row):
        where = np.argwhere(np.abs(picture.astype(int) - colours[row]).max(axis=2) <= 1)
        assert len(where) > 500  # drawn, and large enough to see
        return where.mean(axis=0)

    lines = [[centre(row) for row in line] for line in ([1, 4], [3, 6], [0, 5, 8])]
    for line in lines:
        assert np.ptp([y for y, _ in line]) < 2
        assert np.diff([x for _, x in line]).min() > 40
    assert np.diff([line[0][0] for line in lines]).min() > 40
    for line in lines:  # columns stand under each other
        assert line[0][1] == pytest.approx(lines[0][0][1], abs=2)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            None,
            [
                "2 images, mostly class 0 (50%)",
                "2 images, mostly class 0 (100%)",
                "5 images, mostly class 1 (80%)",
            ],
        ),
        (
            ["cash $ or $", "a very long name of a class"],
            [
                "2 images, mostly cash $ or $ (50%)",
                "2 images, mostly cash $ or $ (100%)",
                "5 images, mostly a very long name … (80%)",
            ],
        ),
    ],
)
def test_a_line_says_size_and_most_common_class_of_the_whole_cluster(drawn, names, expected):
    rows = figures.sample_rows(LABELS, per_cluster=1)
    figures.clusters(np.zeros((3, 5, 7, 1)), rows, LABELS, classes=CLASSES, class_names=names)
    texts = [text.get_text() for text in drawn[0].texts]
    assert texts[::2] == ["cluster 0", "cluster 2", "cluster 4"]
    assert texts[1::2] == expected


def test_without_classes_a_line_says_the_size_alone(drawn):
    figures.clusters(np.zeros((2, 1, 1, 1)), [0, 1], np.array([3, 8, 8]))
    assert [text.get_text() for text in drawn[0].texts] == ["cluster 3", "1 image", "cluster 8", "2 images"]


def test_pictures_that_cannot_be_drawn_are_refused():
    labels = np.array([0, 1, 1])
    with pytest.raises(ValueError, match=r"images have shape \(2, 5, 7, 2\), expected \[2, h, w, 1 or 3\]"):
        figures.clusters(np.zeros((2, 5, 7, 2)), [0, 1], labels)
    with pytest.raises(ValueError, match=r"expected \[3, h, w, 1 or 3\]: one image for each row"):
        figures.clusters(np.zeros((2, 5, 7, 1)), [0, 1, 2], labels)
    with pytest.raises(ValueError, match=r"values from 0 to 255, expected 0 to 1. Give the images before norm"):
        figures.clusters(np.array([0.0, 255.0]).reshape(2, 1, 1, 1), [0, 1], labels)
    with pytest.raises(ValueError, match="There are 2 classes and 3 labels"):
        figures.clusters(np.zeros((2, 5, 7, 1)), [0, 1], labels, classes=[0, 1])


def test_curves_draw_a_panel_for_each_quantity_that_was_recorded(drawn):
    losses = [{"step": step, "loss": 1 / (step + 1)} for step in range(0, 100, 2)]
    passes = [{"step": 0, "nmi": [0.1, 0.2, 0.3], "objective": 7.0}, {"step": 70, "nmi": [0.4, 0.5, 0.9]}]
    figures.curves(passes + losses)
    loss, nmi = drawn[0].axes
    assert loss.get_title(loc="left") == "Training loss"
    assert nmi.get_title(loc="left") == "NMI of labels and true classes"
    np.testing.assert_allclose(loss.lines[0].get_xydata(), [[r["step"], r["loss"]] for r in losses])
    *heads, mean = nmi.lines
    np.testing.assert_allclose([line.get_ydata() for line in heads], [[0.1, 0.4], [0.2, 0.5], [0.3, 0.9]])
    np.testing.assert_allclose(mean.get_xydata(), [[0, 0.2], [70, 0.6]])


def test_curves_are_a_png_and_the_same_bytes_each_time():
    records = [{"step": step, "share_changed": 0.5} for step in (0, 7)]
    first = figures.curves(records)
    assert pixels(first).ndim == 3
    assert figures.curves(records) == first


def test_curves_without_anything_to_draw_are_refused():
    with pytest.raises(ValueError, match="No record has any of loss, nmi, share_changed"):
        figures.curves([{"step": 3, "seconds": 5.0}])


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
    assert (picture[-height:, width + gap :] == 255).all()  # places without a filter
    assert (picture[height : height + gap] == 255).all()


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
