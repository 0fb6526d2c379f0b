"""The search alone: rows and similarities against float64 brute force, ties, tiles."""

import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.evaluation import neighbours
from selabel_tf.evaluation.neighbours import nearest, nearest_others

N, M, D = 2003, 101, 29


def brute_force(bank, queries, k, leave_one_out=False):
    """Rows [M, k] and similarities [M, k] in float64; equal similarities by row."""
    bank, queries = (np.asarray(a, np.float64) for a in (bank, queries))
    unit_bank, unit_queries = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (bank, queries))
    similarity = unit_queries @ unit_bank.T
    if leave_one_out:
        np.fill_diagonal(similarity, -np.inf)
    rows = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    return rows, np.take_along_axis(similarity, rows, axis=1)


def features(seed, rows):
    return np.random.default_rng(seed).normal(size=(rows, D))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 50, 1999, N])
def test_rows_and_similarities_are_those_of_float64_brute_force(dtype, k):
    bank, queries = features(0, N).astype(dtype), features(1, M).astype(dtype)
    rows, similarity = brute_force(bank, queries, k)
    found = nearest(bank, queries, k)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_allclose(found.similarity, similarity, rtol=0, atol=1e-14)


@pytest.mark.parametrize("k", [1, 50, 502])
def test_others_are_those_of_float64_brute_force_without_the_row_itself(k):
    bank = features(2, 503)
    rows, similarity = brute_force(bank, bank, k, leave_one_out=True)
    found = nearest_others(bank, k)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_allclose(found.similarity, similarity, rtol=0, atol=1e-14)


def test_differences_that_float32_cannot_see_are_seen():
    # cos(angle) of 7 rows, each 1e-12 apart: equal in float32, and in the bank from far to near
    closeness = 0.5 + 1e-12 * np.arange(7)
    bank = np.stack([closeness, np.sqrt(1 - closeness**2)], axis=1)
    np.testing.assert_array_equal(nearest(bank, [[1.0, 0.0]], 3).rows, [[6, 5, 4]])


@pytest.mark.parametrize("bank_rows", [5, 64, 10**9])
@pytest.mark.parametrize("k", [1, 31, 200])
def test_equal_rows_rank_by_their_number_whatever_the_tiles(monkeypatch, bank_rows, k):
    monkeypatch.setattr(neighbours, "BANK_ROWS", bank_rows)
    monkeypatch.setattr(neighbours, "BLOCK_VALUES", 997)
    kinds = features(3, 5).astype(np.float32)
    which = np.random.default_rng(4).integers(5, size=503)
    queries = features(5, 11)
    rows, _ = brute_force(kinds, queries, 5)
    order = [np.concatenate([np.flatnonzero(which == kind) for kind in row]) for row in rows]
    np.testing.assert_array_equal(nearest(kinds[which], queries, k).rows, np.array(order)[:, :k])


def test_a_row_with_more_twins_than_neighbours_asked_for_is_still_not_its_own():
    found = nearest_others(np.ones((37, 3)), 5)
    expected = [[j for j in range(37) if j != i][:5] for i in range(37)]
    np.testing.assert_array_equal(found.rows, expected)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 1009, 50021])
@pytest.mark.parametrize("k", [1, 2, 53])
def test_selection_by_groups_is_a_stable_sort(n, k):
    k = min(k, n)
    similarity = np.random.default_rng(n).integers(1 + n // 3, size=(13, n)).astype(np.float32)  # full of ties
    values, columns = neighbours._best(tf.constant(similarity), tf.constant(k))
    expected = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(columns, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(similarity, expected, axis=1))


def test_the_best_may_all_lie_in_one_group_or_in_the_rest():
    for block in (range(300, 305), range(1004, 1009)):
        similarity = np.zeros((1, 1009), np.float32)
        similarity[0, block] = [5, 1, 4, 2, 3]
        np.testing.assert_array_equal(
            neighbours._best(tf.constant(similarity), tf.constant(5))[1], [[block[i] for i in (0, 2, 4, 3, 1)]]
        )


def test_tiles_bound_what_is_held_at_once(monkeypatch):
    tiles, merge = [], neighbours._merge
    monkeypatch.setattr(neighbours, "BLOCK_VALUES", 17 * 401)
    monkeypatch.setattr(neighbours, "BANK_VALUES", 401 * D)

    def recorded(part, first, asked, *rest):
        tiles.append((first, *part.shape, *asked.shape))
        return merge(part, first, asked, *rest)

    monkeypatch.setattr(neighbours, "_merge", recorded)
    nearest(features(0, N), features(1, M), 3)
    assert {first for first, *_ in tiles} == {0, 400, 801, 1201, 1602}
    assert len(tiles) == 5 * 6
    assert all(rows <= 401 and rows * asked <= 17 * 401 for _, rows, _, asked, _ in tiles)


def test_blocks_are_even_and_cover_everything():
    assert neighbours.blocks(10, 4) == [(0, 3), (3, 6), (6, 10)]
    assert neighbours.blocks(3, 100) == [(0, 3)]
    assert neighbours.blocks(3, 0) == [(0, 1), (1, 2), (2, 3)]


def test_progress_is_told_in_queries_and_ends_with_all(monkeypatch):
    monkeypatch.setattr(neighbours, "BANK_ROWS", 1009)
    monkeypatch.setattr(neighbours, "BLOCK_VALUES", 53 * 1009)
    told = []
    nearest(features(0, N), features(1, M), 3, on_queries=told.append)
    assert told == sorted(told) and len(told) == 4 and told[-1] == M
    told.clear()
    nearest_others(features(0, 97), 3, on_queries=told.append)
    assert told[-1] == 97


def test_features_are_neither_copied_nor_changed_as_float32():
    bank = features(0, 97).astype(np.float32)
    kept = bank.copy()
    assert neighbours._Directions("bank", bank).rows is bank
    nearest(bank, bank, 3)
    np.testing.assert_array_equal(bank, kept)


def test_mistakes_are_named():
    bank, queries = features(0, N), features(1, M)
    with pytest.raises(ValueError, match=f"k={N + 1}, but each query has {N} candidates"):
        nearest(bank, queries, N + 1)
    with pytest.raises(ValueError, match=f"k={N}, but each query has {N - 1} candidates"):
        nearest_others(bank, N)
    with pytest.raises(ValueError, match="queries have 28 features and the bank has 29"):
        nearest(bank, queries[:, 1:], 3)
    bank[83, 3] = np.nan
    with pytest.raises(ValueError, match="features has NaN or infinite values, first in row 83"):
        nearest_others(bank, 3)
