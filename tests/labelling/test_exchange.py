"""The exchange graph on cases small enough to do by hand."""

import numpy as np

from selabel_tf.labelling.exchange import Exchange


def exchange(values, labels, lower, upper):
    values = np.array(values, float)
    candidates = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    prices = np.zeros(values.shape[1])
    return Exchange(np.array(labels), prices, candidates, values, np.array(lower), np.array(upper))


def test_the_row_that_loses_least_moves():
    rows = exchange([[0, -5], [0, -2], [0, -3], [-9, 0]], [0, 0, 0, 1], [2, 2], [2, 2])
    assert rows.balance()
    np.testing.assert_array_equal(rows.labels, [0, 1, 0, 1])


def test_a_chain_of_two_cheap_moves_beats_one_dear_move():
    rows = exchange([[0, -1, -9], [0, -2, -9], [-9, 0, -1]], [0, 0, 1], [1, 1, 1], [1, 1, 1])
    assert rows.balance()
    np.testing.assert_array_equal(rows.labels, [1, 0, 2])


def test_the_spare_place_goes_where_it_saves_most():
    rows = exchange([[0, -1, -9], [0, -4, -9], [-9, 0, -7], [-9, -9, 0]], [0, 0, 1, 2], [1, 1, 1], [2, 2, 2])
    assert rows.balance()
    np.testing.assert_array_equal(rows.labels, [0, 0, 1, 2])


def test_prices_and_labels_are_optimal_together():
    values = np.random.default_rng(0).normal(size=(30, 5))
    rows = exchange(values, values.argmax(1), [6] * 5, [6] * 5)
    assert rows.balance()
    scores = values + rows.prices
    np.testing.assert_allclose(scores[np.arange(30), rows.labels], scores.max(1), atol=1e-12)


def test_rows_that_are_alike_move_together(monkeypatch):
    moved = []
    move_along = Exchange._move_along
    monkeypatch.setattr(Exchange, "_move_along", lambda self, path: moved.append(path) or move_along(self, path))
    rows = exchange([[0, -5, -1]] * 12, [0] * 12, [5, 3, 4], [5, 3, 4])
    assert rows.balance()
    np.testing.assert_array_equal(np.bincount(rows.labels), [5, 3, 4])
    assert moved == [[0, 2], [0, 1]]


def test_one_search_serves_several_pairs_of_clusters(monkeypatch):
    searches = []
    search = Exchange._shortest_paths
    monkeypatch.setattr(Exchange, "_shortest_paths", lambda self: searches.append(self) or search(self))
    values = [[0, -1, -9, -9], [0, -2, -9, -9], [-9, -9, 0, -3], [-9, -9, 0, -4]]
    rows = exchange(values, [0, 0, 2, 2], [1] * 4, [1] * 4)
    assert rows.balance()
    np.testing.assert_array_equal(rows.labels, [1, 0, 3, 2])
    assert len(searches) == 1


def test_paths_that_share_rows_are_searched_anew():
    values = [[0, -1, -2], [0, -3, -9], [0, -9, -9]]
    rows = exchange(values, [0, 0, 0], [1] * 3, [1] * 3)
    assert rows.balance()
    np.testing.assert_array_equal(rows.labels, [2, 1, 0])  # row 0 is the cheapest for both


def test_candidates_that_leave_no_way_are_reported():
    values = np.zeros([2, 1])
    rows = Exchange(np.zeros(2, int), np.zeros(2), np.zeros([2, 1], int), values, np.ones(2, int), np.ones(2, int))
    assert not rows.balance()
