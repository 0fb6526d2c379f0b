"""One class for each image, or several: targets, losses and judgement."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from selabel_tf.data.multi_label import MultiLabels
from selabel_tf.training.label_tasks import IGNORED, MultiLabel, SigmoidCrossEntropy, SingleLabel

NAMES = ("ant", "bee", "cat")


def single(classes, names=NAMES):
    return SimpleNamespace(name="set", classes=None if classes is None else np.array(classes), class_names=names)


def multi(present, ignored=None, names=NAMES):
    present = np.array(present, bool)
    ignored = np.zeros_like(present) if ignored is None else np.array(ignored, bool)
    return MultiLabels(tuple(map(str, range(len(present)))), present, ignored, names)


def test_the_sigmoid_loss_is_summed_over_classes_that_count_and_averaged_over_images():
    rng = np.random.default_rng(1)
    scores, targets = rng.normal(size=(5, 3)), (rng.random((5, 3)) < 0.5).astype(float)
    targets[0, 1] = targets[4, 2] = IGNORED
    expected = 0.0
    for x, y in zip(scores.ravel(), targets.ravel(), strict=True):
        if y != IGNORED:
            p = 1 / (1 + np.exp(-x))
            expected -= y * np.log(p) + (1 - y) * np.log(1 - p)
    loss = SigmoidCrossEntropy()(targets.astype(np.float32), scores.astype(np.float32))
    assert float(loss) == pytest.approx(expected / 5, rel=1e-5)


def test_a_single_label_task_judges_by_accuracy():
    task = SingleLabel(single([2, 0, 1, 1]), single([0, 2]))
    np.testing.assert_array_equal(task.targets, [2, 0, 1, 1])
    assert (task.num_classes, task.class_names) == (3, NAMES)
    assert task.judge(np.array([[3.0, 1, 2], [3, 1, 2]])) == [{"top1": 0.5, "top5": None}]
    names = tuple("abcdefg")
    many = SingleLabel(single(range(7), names), single([6], names))
    assert many.judge(np.array([[9.0, 8, 7, 6, 0, 0, 5]])) == [{"top1": 0.0, "top5": 1.0}]


def test_a_multi_label_task_judges_by_average_precision_and_marks_what_is_ignored():
    rng = np.random.default_rng(2)
    present = rng.random((19, 3)) < 0.4
    ignored = ~present & (rng.random((19, 3)) < 0.2)
    task = MultiLabel(multi(present, ignored), multi(present, ignored))
    assert task.num_classes == 3
    np.testing.assert_array_equal(task.targets == 1, present)
    np.testing.assert_array_equal(task.targets == IGNORED, ignored)
    scores = rng.normal(size=(19, 3))
    rows = task.judge(scores)
    assert [row["class"] for row in rows] == ["mean", *NAMES]
    counted = ~ignored[:, 1]
    expected = average_precision_score(present[counted, 1], scores[counted, 1])
    assert rows[2]["ap"] == pytest.approx(expected)


def test_images_of_the_other_kind_are_refused():
    several, one = multi([[1, 0, 1]]), single([0, 1, 2])
    with pytest.raises(ValueError, match=r"set are an array \(1, 3\); .* are a MultiLabel task"):
        SingleLabel(single([[1, 0, 1]]), one)
    with pytest.raises(ValueError, match="The classes of set are none"):
        SingleLabel(one, single(None))
    with pytest.raises(ValueError, match=r"set has no lists of classes.* are a SingleLabel task"):
        MultiLabel(several, one)


def test_classes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"3 classes \(ant, bee, cat\) and those to test on 2 \(ant, bee\)"):
        MultiLabel(multi([[1, 0, 1]]), multi([[1, 0]], names=NAMES[:2]))
    with pytest.raises(ValueError, match="must have the same classes"):
        SingleLabel(single([0, 1]), single([0, 1], NAMES[:2]))
