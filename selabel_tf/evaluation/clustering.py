"""How well does a labelling agree with the true classes, or with another labelling?

None of the measures cares how the clusters are numbered. With n_kc examples in cluster k and class c:

    NMI      = I(u; v) / mean(H(u), H(v))                   0..1, but many small clusters score high by chance
    AMI      = (I - E[I]) / (mean(H(u), H(v)) - E[I])       chance has expectation 0
    ARI      = the same correction applied to the share of pairs of examples that both labellings treat alike
    accuracy = max over one-to-one matchings m of sum_k n_k,m(k) / N
    purity   = sum_k max_c n_kc / N                         1 for clusters of one example each
    entropy  = sum_k a_k/N H_k,  H_k = -sum_c n_kc/a_k log(n_kc/a_k)      in nats: 0 is best, ln C the worst

In a matching every cluster has at most one class and every class at most one cluster. With more clusters than
classes the clusters left over count as wrong: K balanced clusters of C < K classes reach C/K at most. Read accuracy
where K = C, purity and entropy elsewhere.

The first three equal scikit-learn's, and are fast at a million examples and thousands of clusters, where its
adjusted mutual information takes minutes. K-means, the yardstick a self-labelling has to be held against, is its own.
"""

import numpy as np
import threadpoolctl
from scipy.optimize import linear_sum_assignment
from sklearn import cluster

from . import contingency

LOWER_IS_BETTER = ("entropy",)


def nmi(labels, classes) -> float:
    """Normalised mutual information of two labellings [N], arithmetic mean of the entropies."""
    return _nmi(_counted(labels, classes))


def ami(labels, classes) -> float:
    """Adjusted mutual information of two labellings [N], arithmetic mean of the entropies."""
    return _ami(_counted(labels, classes))


def ari(labels, classes) -> float:
    """Adjusted Rand index of two labellings [N]."""
    return _ari(_counted(labels, classes))


def accuracy(labels, classes) -> float:
    """Share of examples [N] in the class that their cluster is matched to, by the best one-to-one matching."""
    return _accuracy(_counted(labels, classes))


def purity(labels, classes) -> float:
    """Share of examples [N] that are of the most common class of their cluster."""
    return _purity(_counted(labels, classes))


def class_entropies(labels, classes, num_clusters) -> np.ndarray:
    """Entropy in nats of the true classes in each cluster, [num_clusters]; NaN for a cluster without examples."""
    filled = cluster_sizes(labels, num_clusters) > 0
    entropies = np.full(num_clusters, np.nan)
    entropies[filled] = _entropies(_counted(labels, classes))
    return entropies


def class_entropy(labels, classes) -> float:
    """Entropy in nats of the true classes in a cluster, mean over examples [N]: large clusters weigh more."""
    return _entropy(_counted(labels, classes))


def scores(labels, classes) -> dict[str, float]:
    """All measures of `labels` [N] against `classes` [N]."""
    table = _counted(labels, classes)
    return {
        "nmi": _nmi(table),
        "ami": _ami(table),
        "ari": _ari(table),
        "accuracy": _accuracy(table),
        "purity": _purity(table),
        "entropy": _entropy(table),
    }


def over_heads(per_head) -> dict[str, dict[str, float]]:
    """The `scores` of several heads as three: "mean", "std" (of the heads themselves, divided by H) and "best".

    "best" is taken measure by measure, and picked by the true classes: what the luckiest head reaches, not what one
    could have chosen without them.
    """
    if not per_head:
        raise ValueError("There are no heads to sum up. Give the scores of one or more.")
    kinds = {tuple(head) for head in per_head}
    if len(kinds) > 1:
        raise ValueError(f"Heads were measured differently: {sorted(kinds)}. Give the same scores of each.")
    values = {name: np.array([head[name] for head in per_head]) for name in per_head[0]}
    return {
        "mean": {name: float(v.mean()) for name, v in values.items()},
        "std": {name: float(v.std()) for name, v in values.items()},
        "best": {name: float(v.min() if name in LOWER_IS_BETTER else v.max()) for name, v in values.items()},
    }


def nmi_between_heads(labels) -> np.ndarray:
    """NMI of every two columns of `labels` [N, H]: symmetric [H, H] with ones on the diagonal.

    Near 1 off the diagonal, a head copies another; near 0, the heads found unrelated divisions.
    """
    labels = np.asarray(labels)
    if labels.ndim != 2 or 0 in labels.shape or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels has shape {labels.shape} and type {labels.dtype}, expected [N, H] integers, one column per head."
        )
    columns = [contingency.numbered(column) for column in labels.T]
    between = np.ones((len(columns), len(columns)))
    for one in range(len(columns)):
        for other in range(one):
            table = contingency.count_numbered(*columns[one], *columns[other])
            between[one, other] = between[other, one] = _nmi(table)
    return between


def cluster_sizes(labels, num_clusters) -> np.ndarray:
    """Number of examples in each cluster, [num_clusters] int64, from `labels` [N] in 0..num_clusters-1."""
    labels = _labelling("labels", labels)
    if labels.min() < 0 or labels.max() >= num_clusters:
        raise ValueError(
            f"labels run from {labels.min()} to {labels.max()}, expected 0 to {num_clusters - 1} "
            f"for num_clusters={num_clusters}."
        )
    return np.bincount(labels, minlength=num_clusters)


def share_changed(old, new) -> float:
    """Share of examples whose label differs between `old` [N] and `new` [N]."""
    old, new = _pair("old", old, "new", new)
    return float(np.mean(old != new))


def kmeans_labels(features, k, seed=0, *, num_starts=10) -> np.ndarray:
    """Labels [N] int32 of K-means with `k` clusters on `features` [N, D]: the best of `num_starts` starts."""
    features = np.asarray(features)
    if features.ndim != 2:
        raise ValueError(f"features have shape {features.shape}, expected [N, D]. Flatten images first.")
    if not 1 <= k <= len(features):
        raise ValueError(f"k={k} clusters of {len(features)} examples. Choose k from 1 to {len(features)}.")
    if num_starts < 1:
        raise ValueError(f"num_starts={num_starts} must be at least 1.")
    if not np.isfinite(features).all():
        raise ValueError("features hold NaN or infinite values. Has the network diverged?")
    kmeans = cluster.KMeans(n_clusters=k, n_init=num_starts, random_state=seed)
    # Threads add their partial sums in the order they finish: with one, the same seed gives the same bits.
    with threadpoolctl.threadpool_limits(limits=1):
        return kmeans.fit(features).labels_.astype(np.int32)


def _counted(labels, classes):
    classes, labels = _pair("classes", classes, "labels", labels)
    return contingency.count(labels, classes)


def _nmi(table):
    mean = sum(table.entropies) / 2
    return table.information / mean if mean > 0 else 1.0  # neither divides anything: they agree


def _ami(table):
    if 1 in table.shape:
        return float(table.shape == (1, 1))
    room = sum(table.entropies) / 2 - table.expected_information
    if room < 1e-9:  # the sizes leave no choice, as N clusters of N examples
        return 1.0
    return (table.information - table.expected_information) / room


def _ari(table):
    def pairs(sizes):
        return float(np.sum(sizes * (sizes - 1) / 2))

    together, rows, columns = map(pairs, (table.counts, table.cluster_sizes, table.class_sizes))
    all_pairs = pairs(np.array([table.num_examples]))
    chance = rows * columns / all_pairs if all_pairs else 0.0
    room = (rows + columns) / 2 - chance
    return (together - chance) / room if room > 0 else 1.0


def _accuracy(table):
    counts = table.dense()
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / table.num_examples)


def _purity(table):
    largest = np.zeros(table.shape[0], np.int64)
    np.maximum.at(largest, table.clusters, table.counts)
    return float(largest.sum() / table.num_examples)


def _entropies(table):
    """H_k = log a_k - sum_c n_kc log n_kc / a_k, of the clusters that occur, [K]."""
    sizes = table.cluster_sizes
    own = np.bincount(table.clusters, table.counts * np.log(table.counts), minlength=len(sizes))
    return np.maximum(np.log(sizes) - own / sizes, 0.0)


def _entropy(table):
    return float(np.average(_entropies(table), weights=table.cluster_sizes))


def _pair(first_name, first, second_name, second):
    first, second = _labelling(first_name, first), _labelling(second_name, second)
    if len(first) != len(second):
        raise ValueError(
            f"{first_name} has {len(first)} entries and {second_name} has {len(second)}. "
            "Both must label the same examples, in the same order."
        )
    return first, second


def _labelling(name, values):
    values = np.asarray(values)
    if values.ndim != 1 or len(values) == 0 or values.dtype.kind not in "iu":
        raise ValueError(
            f"{name} has shape {values.shape} and type {values.dtype}, expected [N] integers, N at least 1. "
            "Of several heads take one column."
        )
    return values
