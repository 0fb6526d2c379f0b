"""Exactly sized clusters at the least loss: shortest paths in the graph of exchanges between clusters.

The problem: labels l_i that maximise sum_i v(i, l_i) with lower_k <= #{i: l_i = k} <= upper_k, where row i may only go
to its candidate clusters. Prices f [K] and labels l are optimal together when

    v(i, l_i) + f_(l_i) >= v(i, k) + f_k       for every candidate k of i            (each row has its best choice)
    sizes keep their limits, f_k <= f_hub where a size is above lower_k, f_k >= f_hub where it is below upper_k

Labels that are each row's best choice satisfy the first line, and the limits are then repaired one row at a time.
Graph: nodes are the clusters and a hub; an edge k -> l costs the least loss of moving one row from k to l; k <-> hub
is free while the size wanted of k may still rise or fall by one. Moving a row along each edge of a shortest path from
an oversized to an undersized cluster, and lowering the prices of the nodes on the near side, keeps both lines
(successive shortest paths), so the labels are optimal at the end. Few rows are out of place when prices are good, and
the paths are short: Dijkstra stops at the first undersized cluster it meets.
"""

from itertools import pairwise

import numpy as np


class Exchange:
    """Labels, prices and the exchange graph.

    labels: int [N]. prices: float64 [K]. candidates: int [N, C], values: float [N, C] = v(i, candidate); every
    row's label is among its candidates. lower, upper: int [K] with upper - lower 0 or 1, sum lower <= N <= sum upper.
    """

    def __init__(self, labels, prices, candidates, values, lower, upper):
        self.labels = labels
        num_clusters = len(prices)
        self._hub = num_clusters
        self._candidates, self._values = candidates, values
        # The sizes wanted: the larger one where the price is low, i.e. where many rows want to be anyway.
        free = np.flatnonzero(upper > lower)
        larger = free[np.argsort(prices[free], kind="stable")[: len(labels) - lower.sum()]]
        self._wanted = lower.copy()
        self._wanted[larger] += 1
        self._lower, self._upper = lower, upper
        smaller = np.setdiff1d(free, larger)
        hub_price = prices[larger].max() if len(larger) else prices[smaller].min() if len(smaller) else 0.0
        self._prices = np.append(prices, hub_price)
        # Edge costs [K + 1, K + 1] and the row that each edge would move (clusters only).
        self._loss = np.full([num_clusters + 1] * 2, np.inf)
        self._mover = np.zeros([num_clusters + 1] * 2, np.int64)
        self._loss[smaller, self._hub] = self._loss[self._hub, larger] = 0.0
        order = np.argsort(labels, kind="stable")
        bounds = np.searchsorted(labels[order], np.arange(num_clusters + 1))
        self._members = [set(order[a:b].tolist()) for a, b in pairwise(bounds)]
        for cluster in range(num_clusters):
            self._measure(cluster)

    @property
    def prices(self):
        """float64 [K]."""
        return self._prices[: self._hub]

    def balance(self):
        """Move rows until every size is as wanted. True when done, False when the candidates leave no way."""
        sizes = np.array([len(members) for members in self._members])
        self._short = np.append(sizes < self._wanted, False)
        for source in np.flatnonzero(sizes > self._wanted):
            while len(self._members[source]) > self._wanted[source]:
                path = self._shortest_path(source)
                if path is None:
                    return False
                self._augment(path)
        return True

    def _shortest_path(self, source):
        """Dijkstra on reduced costs from source to the nearest undersized cluster; adjusts prices. None: no way."""
        f, loss = self._prices, self._loss
        distance = np.full(len(f), np.inf)
        distance[source] = 0.0
        open_distance = distance.copy()  # inf once a node is settled
        parent = np.full(len(f), -1)
        settled = []
        while True:
            node = int(open_distance.argmin())
            reached = open_distance[node]
            if reached == np.inf:
                return None
            if self._short[node]:
                break
            settled.append(node)
            # max(.., reached): prices are exact only to rounding, and a settled node must not be opened again
            offer = np.maximum(reached + (loss[node] + f[node] - f), reached)
            better = offer < distance
            distance[better] = open_distance[better] = offer[better]
            parent[better] = node
            open_distance[node] = np.inf
        f[settled] += distance[settled] - reached
        path = [node]
        while node != source:
            node = int(parent[node])
            path.append(node)
        return path[::-1]

    def _augment(self, path):
        touched = set()
        moves = [(k, to, self._mover[k, to]) for k, to in pairwise(path)]
        for k, to, row in moves:
            if to == self._hub:
                self._want(k, +1)
            elif k == self._hub:
                self._want(to, -1)
            else:
                self._members[k].remove(int(row))
                self._members[to].add(int(row))
                self.labels[row] = to
                touched |= {k, to}
        for cluster in touched:
            self._measure(cluster)
        last = path[-1]
        self._short[last] = len(self._members[last]) < self._wanted[last]

    def _want(self, cluster, change):
        self._wanted[cluster] += change
        self._loss[cluster, self._hub] = 0.0 if self._wanted[cluster] < self._upper[cluster] else np.inf
        self._loss[self._hub, cluster] = 0.0 if self._wanted[cluster] > self._lower[cluster] else np.inf

    def _measure(self, cluster):
        """The cheapest row to move from this cluster to each other one."""
        rows = np.fromiter(self._members[cluster], np.int64, len(self._members[cluster]))
        loss = np.full(self._hub, np.inf)
        if len(rows):
            candidates, values = self._candidates[rows], self._values[rows].astype(np.float64)
            own = np.max(np.where(candidates == cluster, values, -np.inf), axis=1, keepdims=True)
            losses = own - values
            np.minimum.at(loss, candidates, losses)
            row, position = np.nonzero(losses == loss[candidates])
            self._mover[cluster, candidates[row, position]] = rows[row]
            loss[cluster] = np.inf
        self._loss[cluster, : self._hub] = loss
