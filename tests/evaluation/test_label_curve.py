"""Which images are labelled, the table over seeds, and the picture."""

import io

import numpy as np
import pytest
from matplotlib import image as pictures

from selabel_tf.evaluation import label_curve
from selabel_tf.evaluation.label_curve import labelled_rows

CLASSES = np.random.default_rng(1).permutation(np.repeat([0, 1, 4], [20, 30, 50]))


@pytest.mark.parametrize("fraction, counts", [(0.1, [2, 3, 5]), (0.5, [10, 15, 25]), (1.0, [20, 30, 50])])
def test_every_class_gives_the_same_share(fraction, counts):
    rows = labelled_rows(CLASSES, fraction, seed=3)
    np.testing.assert_array_equal(np.unique(CLASSES[rows], return_counts=True)[1], counts)
    assert np.all(np.diff(rows) > 0)


def test_a_larger_part_contains_a_smaller_one_of_the_same_seed():
    small, large, all_ = (set(labelled_rows(CLASSES, fraction, seed=5)) for fraction in (0.1, 0.3, 1))
    assert small < large < all_ == set(range(100))


def test_a_seed_always_draws_the_same_images_and_another_seed_others():
    np.testing.assert_array_equal(labelled_rows(CLASSES, 0.1, seed=7), labelled_rows(CLASSES, 0.1, seed=7))
    assert set(labelled_rows(CLASSES, 0.1, seed=7)) != set(labelled_rows(CLASSES, 0.1, seed=8))
    np.testing.assert_array_equal(labelled_rows(np.zeros(10, int), 0.3, seed=0), [0, 2, 9])  # on every machine


@pytest.mark.parametrize("fraction", [0, -0.1, 1.01, float("nan")])
def test_what_is_no_share_is_refused(fraction):
    with pytest.raises(ValueError, match="is no share of the images"):
        labelled_rows(CLASSES, fraction)


def test_a_share_that_leaves_a_class_empty_is_refused_with_one_that_does_not():
    with pytest.raises(ValueError, match=r"share of 0.02 leaves no image of class 0, which has 20. Use at least 0.05"):
        labelled_rows(CLASSES, 0.02)
    assert len(labelled_rows(CLASSES, 0.05)) == 1 + 2 + 2


def point(method, fraction, seed, top1):
    labelled = round(100 * fraction)
    return {"method": method, "fraction": fraction, "labelled": labelled, "seed": seed, "top1": top1}


POINTS = [
    point("probe", 0.1, 0, 0.50),
    point("tuned", 0.1, 0, 0.55),
    point("probe", 0.01, 0, 0.30),
    point("probe", 0.1, 1, 0.54),
]


def test_the_table_has_mean_and_deviation_over_seeds():
    rows = label_curve.summary(POINTS)
    assert [(row["method"], row["fraction"], row["labelled"], row["seeds"]) for row in rows] == [
        ("probe", 0.01, 1, 1),
        ("probe", 0.1, 10, 2),
        ("tuned", 0.1, 10, 1),
    ]
    assert rows[1]["top1"] == pytest.approx(0.52)
    assert rows[1]["deviation"] == pytest.approx(np.std([0.50, 0.54], ddof=1))
    assert rows[0]["deviation"] is None and rows[2]["deviation"] is None


def test_the_picture_shows_a_line_for_each_method():
    rows = label_curve.summary(POINTS)
    both = pictures.imread(io.BytesIO(label_curve.picture(rows, title="digits")))
    one = pictures.imread(io.BytesIO(label_curve.picture(rows[:2], title="digits")))
    assert both.shape == one.shape and both.shape[:2] == (630, 960)

    def has(picture, colour):
        wanted = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        return bool((np.abs(picture[..., :3] - wanted).max(axis=-1) < 0.01).any())

    first, second = label_curve.COLOURS[:2]
    assert has(both, first) and has(both, second)
    assert has(one, first) and not has(one, second)
    with pytest.raises(ValueError, match="nothing to draw"):
        label_curve.picture([])


def test_the_picture_names_its_lines_and_labels_its_axes_with_what_stands_there():
    axes = label_curve.figure(label_curve.summary(POINTS)).axes[0]
    assert [text.get_text() for text in axes.texts] == ["probe 52.0%", "tuned 55.0%"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1\n1%", "10\n10%"]
    for height, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True):
        assert float(label.get_text().rstrip("%")) == pytest.approx(100 * height, abs=1e-6)  # 92.5% is not 92%


def test_names_of_lines_that_end_close_together_are_moved_apart_and_others_are_not():
    np.testing.assert_allclose(label_curve._apart([0.5, 0.9, 0.51], 0.03), [0.49, 0.9, 0.52])
    np.testing.assert_allclose(label_curve._apart([0.5, 0.5], 0.1), [0.45, 0.55])
    np.testing.assert_allclose(label_curve._apart([0.2, 0.1], 0.05), [0.2, 0.1])
