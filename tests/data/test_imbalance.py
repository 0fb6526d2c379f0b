import numpy as np
import pytest

from selabel_tf.data import from_arrays, imbalanced
from selabel_tf.data.imbalance import remaining_rows

N, C = 1009, 10  # 101 examples of class 0..8, 100 of class 9


@pytest.fixture
def source():
    generator = np.random.default_rng(0)
    classes = generator.permutation(np.arange(N) % C)
    images = generator.integers(256, size=(N, 3, 2, 1), dtype=np.uint8)
    return from_arrays(images, classes, class_names=[f"kind {c}" for c in range(C)])


def test_the_papers_counts_on_cifar10():
    classes = np.repeat(np.arange(10), 5000)
    light = np.bincount(classes[remaining_rows(classes, "light", seed=0)])
    heavy = np.bincount(classes[remaining_rows(classes, "heavy", seed=0)])
    np.testing.assert_array_equal(light, [5000] * 9 + [2500])
    np.testing.assert_array_equal(heavy, [5000, 4500, 4000, 3500, 3000, 2500, 2000, 1500, 1000, 500])


def test_odd_counts_lose_the_smaller_part(source):
    np.testing.assert_array_equal(np.bincount(imbalanced(source, "light").classes), [101] * 9 + [50])
    kept = [101, 91, 81, 71, 61, 51, 41, 31, 21, 10]  # 101 - floor(101 c / 10), the last of 100
    np.testing.assert_array_equal(np.bincount(imbalanced(source, "heavy").classes), kept)


def test_of_any_number_of_classes_every_one_keeps_some():
    classes = np.repeat([2, 3, 5, 7, 11, 13, 17], 13)  # numbers with gaps
    kept = remaining_rows(classes, "heavy", seed=3)
    counts = [np.count_nonzero(classes[kept] == c) for c in (2, 3, 5, 7, 11, 13, 17)]
    assert counts == [13, 12, 10, 8, 6, 4, 2]  # 13 - floor(13 c / 7)
    assert len(remaining_rows(np.arange(7), "heavy", seed=3)) == 7  # one of each: nobody disappears


def test_what_stays_keeps_its_order_its_id_and_its_image(source):
    uneven = imbalanced(source, "heavy", seed=5)
    rows = remaining_rows(source.classes, "heavy", seed=5)
    assert (np.diff(rows) > 0).all()
    assert uneven.ids == tuple(source.ids[row] for row in rows)
    np.testing.assert_array_equal(uneven.classes, source.classes[rows])
    shown = np.concatenate([images for images, _ in uneven.plain_batches(97).as_numpy_iterator()])
    whole = np.concatenate([images for images, _ in source.plain_batches(97).as_numpy_iterator()])
    np.testing.assert_array_equal(shown, whole[rows])
    assert uneven.fingerprint != source.fingerprint
    assert uneven.class_names == source.class_names


def test_the_seed_decides_which_examples_go(source):
    one, again, other = (imbalanced(source, "heavy", seed=seed) for seed in (1, 1, 2))
    assert one.ids == again.ids
    assert one.ids != other.ids
    assert one.fingerprint != other.fingerprint


def test_removal_is_spread_over_the_whole_set(source):
    rows = np.flatnonzero(source.classes == 9)
    kept = np.isin(rows, remaining_rows(source.classes, "light", seed=0))
    assert 15 < kept[:50].sum() < 35  # not the first half, not the second


def test_none_is_the_source_itself(source):
    assert imbalanced(source, "none") is source


def test_a_set_without_classes_and_an_unknown_kind_are_refused(source):
    unlabelled = from_arrays(np.zeros((7, 3, 2, 1), np.uint8))
    with pytest.raises(ValueError, match="arrays has no classes to make uneven"):
        imbalanced(unlabelled, "light")
    assert imbalanced(unlabelled, "none") is unlabelled
    with pytest.raises(ValueError, match=r"Unknown imbalance 'medium'\. Available: none, light, heavy"):
        imbalanced(source, "medium")
