"""Average precision on hand-made rankings, against scikit-learn, and where classes have nothing to find."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from selabel_tf.evaluation import average_precision as ap


def ranked(present):
    """(scores, present): the first image scores highest, but stands in another place."""
    order = np.random.default_rng(3).permutation(len(present))
    scores = np.empty(len(present))
    scores[order] = -np.arange(len(present))
    shuffled = np.empty(len(present), bool)
    shuffled[order] = np.array(present, bool)
    return scores, shuffled


CASES = {
    # ranking: plain, 11-point, all-points
    (1, 0, 1, 0, 0, 1): ((1 + 2 / 3 + 1 / 2) / 3, (4 * 1 + 3 * 2 / 3 + 4 * 1 / 2) / 11, (1 + 2 / 3 + 1 / 2) / 3),
    (0, 1, 1): ((1 / 2 + 2 / 3) / 2, 2 / 3, 2 / 3),
    (1,): (1, 1, 1),
    (0, 0, 0, 1): (1 / 4, 1 / 4, 1 / 4),
    (1, 1, 0, 0): (1, 1, 1),
    # recall is exactly 3/10 where precision ends to be 1: the points 0, 0.1, 0.2 and 0.3 see it
    (1,) * 3 + (0,) * 7 + (1,) * 7: (
        (3 + sum((3 + n) / (10 + n) for n in range(1, 8))) / 10,
        (4 + 7 * 10 / 17) / 11,
        (3 + 7 * 10 / 17) / 10,
    ),
}


@pytest.mark.parametrize("ranking, expected", CASES.items(), ids=str)
def test_rankings_made_by_hand(ranking, expected):
    found = [variant(*ranked(ranking)) for variant in (ap.plain, ap.eleven_point, ap.all_points)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("decimals", [9, 1], ids=["distinct scores", "many equal scores"])
def test_plain_is_that_of_scikit_learn(decimals):
    rng = np.random.default_rng(5)
    for _ in range(20):
        scores, present = rng.normal(size=97).round(decimals), rng.random(97) < 0.2
        assert ap.plain(scores, present) == pytest.approx(average_precision_score(present, scores), abs=1e-12)


def test_interpolation_as_the_benchmark_defines_it_on_random_rankings():
    """The definitions, written as loops over all thresholds in exact fractions of integers."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        scores, present = rng.normal(size=53).round(1), rng.random(53) < 0.3
        pairs = [((present & (scores >= s)).sum(), (scores >= s).sum()) for s in np.unique(scores)]
        total = present.sum()

        def best(numerator, denominator, pairs=pairs, total=total):
            return max(right / taken for right, taken in pairs if right * denominator >= numerator * total)

        assert ap.eleven_point(scores, present) == pytest.approx(np.mean([best(t, 10) for t in range(11)]), abs=1e-12)
        area = np.mean([best(n, total) for n in range(1, total + 1)])  # each positive is 1/total of recall
        assert ap.all_points(scores, present) == pytest.approx(area, abs=1e-12)


@pytest.mark.parametrize("variant", ap.VARIANTS.values())
def test_only_the_ranking_counts_and_not_the_order_of_images(variant):
    rng = np.random.default_rng(11)
    scores, present = rng.normal(size=31).round(1), rng.random(31) < 0.4
    order = rng.permutation(31)
    assert variant(scores[order], present[order]) == pytest.approx(variant(scores, present))
    assert variant(np.exp(3 * scores) + 2, present) == pytest.approx(variant(scores, present))


def test_ignored_images_are_neither_found_nor_mistaken():
    scores = np.array([[0.9], [0.8], [0.1], [0.0]])
    present = np.array([[False], [True], [False], [False]])
    easy = np.zeros((4, 1), bool)
    first, last = easy.copy(), easy.copy()
    first[0], last[3] = True, True
    as_it_is, without_first, without_last = (ap.of_classes(scores, present, i, ["x"])[1] for i in (easy, first, last))
    assert as_it_is == {"class": "x", "positives": 1, "ignored": 0, "ap": 0.5, "ap11": 0.5, "ap_all": 0.5}
    assert without_first == {"class": "x", "positives": 1, "ignored": 1, "ap": 1.0, "ap11": 1.0, "ap_all": 1.0}
    assert without_last["ap"] == 0.5  # as a positive it would be 0.5 / 2 + ...


def test_the_mean_is_over_the_classes_that_some_image_shows():
    rng = np.random.default_rng(13)
    scores = rng.normal(size=(29, 3))
    present = rng.random((29, 3)) < 0.4
    ignored = np.zeros((29, 3), bool)
    ignored[:, 1] = present[:, 1]  # class b is shown only by difficult objects
    present[:, 1] = False
    mean, a, b, c = ap.of_classes(scores, present, ignored, ["a", "b", "c"])
    assert (b["positives"], b["ap"], b["ap11"], b["ap_all"]) == (0, None, None, None) and b["ignored"] > 0
    assert mean["class"] == "mean"
    assert mean["positives"] == a["positives"] + c["positives"]
    for key in ap.VARIANTS:
        assert mean[key] == pytest.approx((a[key] + c[key]) / 2)
    assert a["ap"] == pytest.approx(average_precision_score(present[:, 0], scores[:, 0]))


def test_mistakes_are_explained():
    scores, present = np.zeros((3, 2)), np.ones((3, 2), bool)
    with pytest.raises(ValueError, match=r"present has shape \(2, 2\), expected \(3, 2\)"):
        ap.of_classes(scores, present[:2], ~present, ["a", "b"])
    with pytest.raises(ValueError, match="No image shows any of the classes"):
        ap.of_classes(scores, ~present, ~present, ["a", "b"])
    with pytest.raises(ValueError, match="No image shows the class"):
        ap.plain(scores[:, 0], ~present[:, 0])
    with pytest.raises(ValueError, match="NaN or infinity"):
        ap.eleven_point(np.array([0.0, np.nan]), np.array([True, False]))
    with pytest.raises(ValueError, match=r"scores \(3, 2\) and present \(3,\)"):
        ap.all_points(scores, present[:, 0])
