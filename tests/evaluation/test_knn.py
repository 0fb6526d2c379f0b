import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from selabel_tf.evaluation import knn, neighbours

N, M, D, C = 211, 53, 7, 5


def clouds(seed=0, spread=1.5):
    """Overlapping clouds, one for each class: bank [N, D], classes [N], queries [M, D], classes [M]."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(C, D))
    bank_classes, query_classes = rng.integers(C, size=N), rng.integers(C, size=M)
    bank = centres[bank_classes] + spread * rng.normal(size=(N, D))
    queries = centres[query_classes] + spread * rng.normal(size=(M, D))
    return bank, bank_classes, queries, query_classes


def float64_votes(bank, bank_classes, queries, k, sigma, leave_one_out=False):
    """The definition, one query at a time: votes [M, C]. No decision may be within float32 rounding."""
    bank = bank / np.linalg.norm(bank, axis=1, keepdims=True)
    votes = np.zeros((len(queries), bank_classes.max() + 1))
    for i, query in enumerate(queries):
        similarity = bank @ (query / np.linalg.norm(query))
        if leave_one_out:
            similarity[i] = -np.inf
        order = np.argsort(-similarity, kind="stable")
        assert k >= len(order) or similarity[order[k - 1]] - similarity[order[k]] > 1e-6
        for j in order[:k]:
            votes[i, bank_classes[j]] += np.exp(similarity[j] / sigma)
    second, first = np.sort(votes, axis=1)[:, -2:].T
    assert (second < first * (1 - 1e-4)).all()
    return votes


@pytest.mark.parametrize("k", [1, 11, 50, N])
@pytest.mark.parametrize("sigma", [0.03, 0.1, 2.0])
def test_predictions_are_those_of_the_definition_in_float64(k, sigma):
    bank, bank_classes, queries, query_classes = clouds()
    expected = float64_votes(bank, bank_classes, queries, k, sigma).argmax(axis=1)
    np.testing.assert_array_equal(knn.knn_predict(bank, bank_classes, queries, k=k, sigma=sigma), expected)
    accuracy = knn.knn_accuracy(bank, bank_classes, queries, query_classes, k=k, sigma=sigma)
    assert accuracy == pytest.approx(np.mean(expected == query_classes))


def test_predictions_are_those_of_scikit_learn():
    bank, bank_classes, queries, _ = clouds(seed=1)
    oracle = KNeighborsClassifier(13, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.1))
    expected = oracle.fit(bank, bank_classes).predict(queries)
    np.testing.assert_array_equal(float64_votes(bank, bank_classes, queries, 13, 0.1).argmax(axis=1), expected)
    np.testing.assert_array_equal(knn.knn_predict(bank, bank_classes, queries, k=13, sigma=0.1), expected)


def test_the_paper_values_of_k_and_sigma_are_the_defaults():
    bank, bank_classes, queries, query_classes = clouds(seed=2)
    explicit = {"k": 50, "sigma": 0.1}
    predicted = knn.knn_predict(bank, bank_classes, queries)
    np.testing.assert_array_equal(predicted, knn.knn_predict(bank, bank_classes, queries, **explicit))
    accuracy = knn.knn_accuracy(bank, bank_classes, queries, query_classes)
    assert accuracy == knn.knn_accuracy(bank, bank_classes, queries, query_classes, **explicit)
    assert knn.leave_one_out_accuracy(bank, bank_classes) == knn.leave_one_out_accuracy(bank, bank_classes, **explicit)


@pytest.mark.parametrize("k", [1, 11, N - 1])
def test_leave_one_out_is_the_definition_without_the_query_itself(k):
    features, classes, _, _ = clouds(seed=3)
    expected = float64_votes(features, classes, features, k, 0.1, leave_one_out=True).argmax(axis=1)
    accuracy = knn.leave_one_out_accuracy(features, classes, k=k, sigma=0.1)
    assert accuracy == pytest.approx(np.mean(expected == classes))


def test_a_row_that_only_it_resembles_is_not_its_own_neighbour():
    features = np.eye(3)[[0, 0, 1, 1, 2]]
    assert knn.leave_one_out_accuracy(features, [0, 0, 1, 1, 2], k=1) == pytest.approx(4 / 5)


@pytest.mark.parametrize("block_values, bank_rows", [(1, 10**9), (53 * 19, 3), (7 * 43, 43), (10**9, 10**9)])
def test_the_block_sizes_do_not_change_the_result(monkeypatch, block_values, bank_rows):
    bank, bank_classes, queries, _ = clouds(seed=4)
    expected = float64_votes(bank, bank_classes, queries, 11, 0.1).argmax(axis=1)
    left_out = float64_votes(bank, bank_classes, bank, 11, 0.1, leave_one_out=True).argmax(axis=1)
    monkeypatch.setattr(neighbours, "BLOCK_VALUES", block_values)
    monkeypatch.setattr(neighbours, "BANK_ROWS", bank_rows)
    np.testing.assert_array_equal(knn.knn_predict(bank, bank_classes, queries, k=11), expected)
    accuracy = knn.leave_one_out_accuracy(bank, bank_classes, k=11)
    assert accuracy == pytest.approx(np.mean(left_out == bank_classes))


def test_classes_may_be_any_values():
    bank, bank_classes, queries, _ = clouds(seed=5)
    names = np.array(["owl", "cat", "elk", "ant", "bee"])
    expected = float64_votes(bank, bank_classes, queries, 11, 0.1).argmax(axis=1)
    np.testing.assert_array_equal(knn.knn_predict(bank, names[bank_classes], queries, k=11), names[expected])
    np.testing.assert_array_equal(knn.knn_predict(bank, bank_classes * 1000 - 7, queries, k=11), expected * 1000 - 7)


def test_only_the_direction_of_features_counts_whatever_their_size():
    bank, bank_classes, queries, _ = clouds(seed=6)
    expected = float64_votes(bank, bank_classes, queries, 11, 0.1).argmax(axis=1)
    scales = 10.0 ** np.random.default_rng(6).integers(-30, 30, size=(N, 1))
    scaled = (bank * scales).astype(np.float32)
    np.testing.assert_array_equal(knn.knn_predict(scaled, bank_classes, queries * 1e300, k=11), expected)


def test_integer_pixels_are_features_too():
    pixels = np.array([[200, 10], [190, 0], [10, 200], [0, 255]], np.uint8)
    assert knn.leave_one_out_accuracy(pixels, [0, 0, 1, 1], k=1) == 1.0


def test_small_sigma_neither_overflows_nor_loses_the_nearest():
    bank, bank_classes, queries, _ = clouds(seed=7)
    nearest = float64_votes(bank, bank_classes, queries, 1, 0.1).argmax(axis=1)
    np.testing.assert_array_equal(knn.knn_predict(bank, bank_classes, queries, k=29, sigma=1e-8), nearest)


def test_a_zero_vector_has_similarity_zero():
    bank = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    # From (1, 0): similarities 0, 1, -1. From (-1, 0): 0, -1, 1. From zero: all 0, so the first row.
    np.testing.assert_array_equal(knn.knn_predict(bank, [5, 6, 7], [[1, 0], [-1, 0], [0, 0]], k=1), [6, 7, 5])


def test_equal_votes_go_to_the_smaller_class_and_equal_neighbours_to_the_lower_row():
    bank = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(knn.knn_predict(bank, [9, 4, 9, 4], [[1.0, 1.0]], k=4), [4])
    np.testing.assert_array_equal(knn.knn_predict(bank, [9, 4, 3, 4], [[1.0, 0.0]], k=1), [9])


@pytest.mark.parametrize("k", [0, -3, N + 1])
def test_k_outside_the_bank_is_refused(k):
    bank, bank_classes, queries, _ = clouds()
    with pytest.raises(ValueError, match=f"k={k}, but each query has {N} candidates. Choose k from 1 to {N}"):
        knn.knn_predict(bank, bank_classes, queries, k=k)


def test_k_must_leave_out_the_query_and_be_whole():
    bank, bank_classes, _, _ = clouds()
    with pytest.raises(ValueError, match=f"k={N}, but each query has {N - 1} candidates"):
        knn.leave_one_out_accuracy(bank, bank_classes, k=N)
    with pytest.raises(TypeError):
        knn.leave_one_out_accuracy(bank, bank_classes, k=2.5)


@pytest.mark.parametrize("sigma", [0, -0.1, float("nan"), 1e-60])
def test_sigma_must_be_positive(sigma):
    bank, bank_classes, queries, _ = clouds()
    with pytest.raises(ValueError, match=r"sigma=.* must be positive"):
        knn.knn_predict(bank, bank_classes, queries, k=3, sigma=sigma)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused_with_their_row(bad):
    bank, bank_classes, queries, _ = clouds()
    spoiled = queries.copy()
    spoiled[31, 2] = bad
    with pytest.raises(ValueError, match="queries has NaN or infinite values, first in row 31"):
        knn.knn_predict(bank, bank_classes, spoiled, k=3)


def test_shapes_that_do_not_fit_are_refused():
    bank, bank_classes, queries, query_classes = clouds()
    with pytest.raises(ValueError, match="queries have 6 features and the bank has 7"):
        knn.knn_predict(bank, bank_classes, queries[:, :6], k=3)
    with pytest.raises(ValueError, match=r"bank_classes has shape \(210,\), expected \(211,\)"):
        knn.knn_predict(bank, bank_classes[:-1], queries, k=3)
    with pytest.raises(ValueError, match=r"query_classes has shape \(52,\), expected \(53,\)"):
        knn.knn_accuracy(bank, bank_classes, queries, query_classes[1:], k=3)
    with pytest.raises(ValueError, match=r"bank has shape \(211, 7, 1\), expected \[rows, features\]"):
        knn.knn_predict(bank[..., None], bank_classes, queries, k=3)
    with pytest.raises(ValueError, match=r"queries has shape \(0, 7\)"):
        knn.knn_predict(bank, bank_classes, queries[:0], k=3)


def places(votes, classes):
    """Place of the true class among the votes, 0 the best, by sorting one query at a time; C where it has no vote."""
    found = []
    for row, true in zip(votes, classes, strict=True):
        order = sorted(range(len(row)), key=lambda c: (-row[c], c))
        found.append(order.index(true) if row[true] > 0 else len(row))
    return np.array(found)


def many_clouds(seed, classes):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, D))
    drawn = rng.integers(classes, size=N + M)
    drawn[:classes] = np.arange(classes)  # every class is in the bank
    rows = centres[drawn] + 1.5 * rng.normal(size=(N + M, D))
    return rows[:N], drawn[:N], rows[N:], drawn[N:]


@pytest.mark.parametrize("classes", [3, 13])
def test_the_table_has_top_1_and_top_5_of_the_definition_for_every_k_and_sigma(classes):
    bank, bank_classes, queries, query_classes = many_clouds(8, classes)
    table = knn.knn_table(bank, bank_classes, queries, query_classes, ks=[23, 1, 7], sigmas=[0.07, 0.5])
    assert [(row.k, row.sigma) for row in table] == [(k, s) for k in (23, 1, 7) for s in (0.07, 0.5)]
    for row in table:
        place = places(float64_votes(bank, bank_classes, queries, row.k, row.sigma), query_classes)
        assert row.top1 == pytest.approx(np.mean(place < 1))
        assert row.top5 == pytest.approx(np.mean(place < min(5, classes)))
        assert row.top1 == knn.knn_accuracy(bank, bank_classes, queries, query_classes, k=row.k, sigma=row.sigma)
    assert len({row.top5 for row in table}) > 1


def test_the_leave_one_out_table_is_the_definition_too():
    features, classes, _, _ = many_clouds(9, 13)
    for row in knn.leave_one_out_table(features, classes, ks=[5, 41], sigmas=[0.1, 0.9]):
        place = places(float64_votes(features, classes, features, row.k, row.sigma, leave_one_out=True), classes)
        assert (row.top1, row.top5) == pytest.approx((np.mean(place < 1), np.mean(place < 5)))


def test_one_search_serves_the_whole_table(monkeypatch):
    bank, bank_classes, queries, query_classes = clouds()
    asked, search = [], knn.nearest
    monkeypatch.setattr(knn, "nearest", lambda b, q, k, **rest: asked.append(k) or search(b, q, k, **rest))
    assert len(knn.knn_table(bank, bank_classes, queries, query_classes, ks=[3, 29, 7], sigmas=[0.1, 0.2, 0.3])) == 9
    assert asked == [29]


def test_the_tables_have_the_paper_values_as_defaults():
    bank, bank_classes, queries, query_classes = clouds(seed=2)
    (row,) = knn.knn_table(bank, bank_classes, queries, query_classes)
    assert (row.k, row.sigma) == (50, 0.1)
    (row,) = knn.leave_one_out_table(bank, bank_classes)
    assert (row.k, row.sigma) == (50, 0.1)


def test_a_class_without_a_neighbour_is_no_top_5_hit():
    bank = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    (row,) = knn.knn_table(bank, [0, 1, 2], [[1.0, 0.1], [1.0, 0.1]], [0, 1], ks=[1])
    assert (row.top1, row.top5) == (0.5, 0.5)


def test_five_of_six_classes_with_votes_are_hits_and_equal_votes_rank_by_class():
    bank = np.ones((6, 2))
    (row,) = knn.knn_table(bank, [7, 6, 5, 4, 3, 2], np.ones((6, 2)), [2, 3, 4, 5, 6, 7], ks=[6])
    assert (row.top1, row.top5) == pytest.approx((1 / 6, 5 / 6))


def test_classes_that_the_bank_does_not_have_are_refused():
    bank, bank_classes, queries, query_classes = clouds()
    strange = np.where(np.arange(M) < 4, query_classes, 10 + np.arange(M) % 4)
    strange[4:9] = np.arange(5)
    with pytest.raises(ValueError, match=r"queries have 9 classes, the bank has 5, .* is 10, 11, 12, \.\.\.\. Take"):
        knn.knn_table(bank, bank_classes, queries, strange, ks=[3])
    with pytest.raises(ValueError, match=r"not among them is owl\. Take both"):
        knn.check_classes(np.array(["ant", "bee"]), np.array(["bee", "owl"]))
    knn.check_classes(bank_classes, query_classes[:3])  # queries of fewer classes are fine


def test_an_empty_list_of_settings_is_refused():
    bank, bank_classes, queries, query_classes = clouds()
    with pytest.raises(ValueError, match="give at least one of each"):
        knn.knn_table(bank, bank_classes, queries, query_classes, ks=[], sigmas=[0.1])
    with pytest.raises(ValueError, match="give at least one of each"):
        knn.leave_one_out_table(bank, bank_classes, ks=[3], sigmas=[])


def test_the_table_refuses_any_k_beyond_the_bank_and_any_sigma_of_zero():
    bank, bank_classes, queries, query_classes = clouds()
    with pytest.raises(ValueError, match=f"k={N + 1}, but each query has {N} candidates"):
        knn.knn_table(bank, bank_classes, queries, query_classes, ks=[3, N + 1])
    with pytest.raises(ValueError, match=f"k={N}, but each query has {N - 1} candidates"):
        knn.leave_one_out_table(bank, bank_classes, ks=[N, 3])
    with pytest.raises(ValueError, match=r"sigma=0\.0 must be positive"):
        knn.knn_table(bank, bank_classes, queries, query_classes, ks=[3], sigmas=[0.1, 0.0])
