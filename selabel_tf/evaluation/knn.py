"""Weighted k-nearest-neighbour classification: how good are features without training anything on them?

    s_ij    = <q_i, b_j> / (|q_i| |b_j|)               cosine similarity of query i and bank row j
    vote_ic = sum over the k nearest j of class c of exp(s_ij / sigma)
    class_i = argmax_c vote_ic

exp(s / sigma) is taken relative to the nearest neighbour, exp((s - s_max) / sigma): the same argmax, and no
overflow at any sigma. Equal votes go to the smaller class. Top-5: the true class is among the five with the
most votes (with fewer than five classes, among all of them), and has a vote: a class that no neighbour is of is never
a hit.

`neighbours` searches once, for the greatest k; every k and sigma votes on what it found.
"""

from typing import NamedTuple

import numpy as np

from . import neighbours
from .neighbours import blocks, check_k, nearest, nearest_others

TOP = 5


class Accuracy(NamedTuple):
    """Shares of right answers with `k` neighbours weighted at `sigma`."""

    k: int
    sigma: float
    top1: float
    top5: float


def knn_predict(bank, bank_classes, queries, *, k=50, sigma=0.1) -> np.ndarray:
    """Classes [M] of `queries` [M, D] by the `k` nearest rows of `bank` [N, D]; `bank_classes`: [N]."""
    bank_classes = _one_per_row("bank_classes", bank_classes, bank)
    check_settings([k], [sigma], len(bank_classes))
    names, codes = np.unique(bank_classes, return_inverse=True)
    votes = _vote_blocks(nearest(bank, queries, k), codes, len(names), k, sigma)
    return names[np.concatenate([block.argmax(axis=1) for _, block in votes])]


def knn_accuracy(bank, bank_classes, queries, query_classes, *, k=50, sigma=0.1) -> float:
    """Share of `queries` [M, D] whose predicted class is the one in `query_classes` [M]."""
    query_classes = _one_per_row("query_classes", query_classes, queries)
    return float(np.mean(knn_predict(bank, bank_classes, queries, k=k, sigma=sigma) == query_classes))


def leave_one_out_accuracy(features, classes, *, k=50, sigma=0.1) -> float:
    """Share of rows of `features` [N, D] classified right by the other rows: for sets with no test split."""
    return leave_one_out_table(features, classes, ks=[k], sigmas=[sigma])[0].top1


def knn_table(
    bank, bank_classes, queries, query_classes, *, ks=(50,), sigmas=(0.1,), on_queries=None
) -> tuple[Accuracy, ...]:
    """Accuracy on `queries` [M, D] of classes `query_classes` [M], for every k and, within it, every sigma.

    on_queries: called with the number of queries searched for, for progress bars.
    """
    bank_classes = _one_per_row("bank_classes", bank_classes, bank)
    query_classes = _one_per_row("query_classes", query_classes, queries)
    check_settings(ks, sigmas, len(bank_classes))
    check_classes(bank_classes, query_classes)
    found = nearest(bank, queries, max(ks), on_queries=on_queries)
    return _table(found, bank_classes, query_classes, ks, sigmas)


def leave_one_out_table(features, classes, *, ks=(50,), sigmas=(0.1,), on_queries=None) -> tuple[Accuracy, ...]:
    """As `knn_table`, each row of `features` [N, D] classified by the other rows: for sets with no test split."""
    classes = _one_per_row("classes", classes, features)
    check_settings(ks, sigmas, len(classes) - 1)
    return _table(nearest_others(features, max(ks), on_queries=on_queries), classes, classes, ks, sigmas)


def check_settings(ks, sigmas, num_candidates):
    """Refuses what no search could answer, before hours are spent on features. num_candidates: rows each query sees."""
    if len(ks) == 0 or len(sigmas) == 0:
        raise ValueError(f"ks={list(ks)} and sigmas={list(sigmas)}: give at least one of each, e.g. [50] and [0.1].")
    for k in ks:
        check_k(k, num_candidates)
    for sigma in sigmas:
        if not 0 < np.float32(sigma) < np.inf:
            raise ValueError(f"sigma={sigma} must be positive and finite (the usual value is 0.1).")


def check_classes(bank_classes, query_classes):
    """Refuses queries of classes that the bank does not have: no neighbour could vote for them."""
    known, asked = np.unique(bank_classes), np.unique(query_classes)
    unknown = asked[~np.isin(asked, known)]
    if len(unknown):
        raise ValueError(
            f"The queries have {len(asked)} classes, the bank has {len(known)}, and not among them is "
            f"{', '.join(map(str, unknown[:3].tolist()))}{', ...' if len(unknown) > 3 else ''}. "
            "Take both from the same set of classes."
        )


def _table(found, bank_classes, query_classes, ks, sigmas):
    names, codes = np.unique(bank_classes, return_inverse=True)
    wanted = np.searchsorted(names, query_classes)  # codes of the true classes
    rows = []
    for k in ks:
        for sigma in sigmas:
            places = [_places(votes, wanted[span]) for span, votes in _vote_blocks(found, codes, len(names), k, sigma)]
            places = np.concatenate(places)
            rows.append(Accuracy(int(k), float(sigma), float(np.mean(places < 1)), float(np.mean(places < TOP))))
    return tuple(rows)


def _vote_blocks(found, codes, num_classes, k, sigma):
    """Yields (slice of the queries, votes float64 [B, C]) until all queries are through."""
    for start, stop in blocks(len(found.rows), neighbours.BLOCK_VALUES // max(k, num_classes)):
        span = slice(start, stop)
        similarity = found.similarity[span, :k]
        weights = np.exp((similarity - similarity[:, :1]) / sigma)
        ballots = np.arange(stop - start)[:, None] * num_classes + codes[found.rows[span, :k]]  # places in the votes
        votes = np.bincount(ballots.ravel(), weights.ravel(), minlength=(stop - start) * num_classes)
        yield span, votes.reshape(stop - start, num_classes)


def _places(votes, wanted):
    """How many classes of `votes` [B, C] come before the class `wanted` [B]; C if that has no vote."""
    own = np.take_along_axis(votes, wanted[:, None], axis=1)
    is_ahead = (votes > own) | ((votes == own) & (np.arange(votes.shape[1]) < wanted[:, None]))
    return np.where(own[:, 0] > 0, is_ahead.sum(axis=1), max(TOP, votes.shape[1]))


def _one_per_row(name, classes, rows):
    classes = np.asarray(classes)
    if classes.shape != (len(rows),):
        raise ValueError(
            f"{name} has shape {classes.shape}, expected ({len(rows)},): one class for each row of features."
        )
    return classes
