"""Exactly sized clusters at the least loss: shortest paths in the graph of exchanges between clusters.

The problem: labels l_i that maximise sum_i v(i, l_i) with lower_k <= #{i: l_i = k} <= upper_k, where row i may only go
to its candidate clusters. Prices f [K] and labels l are optimal together when

    v(i, l_i) + f_(l_i) >= v(i, k) + f_k       for every candidate k of i            (each row has its best choice)
    sizes keep their limits, f_k <= f_hub where a size is above lower_k, f_k >= f_hub where it is below upper_k

Labels that are each row's best choice satisfy the first line, and the limits are then repaired path by path.
Graph: nodes are the clusters and a hub; an edge k -> l costs the least loss of moving one row from k to l; k <-> hub
is free while the size wanted of k may still rise or fall by one. Moving a row along each edge of a shortest path from
an oversized to an undersized cluster, and lowering the prices of the nodes on the near side, keeps both lines
(successive shortest paths), so the labels are optimal at the end. One search starts from all oversized clusters at
once and finds a path to every undersized one; those that do not share their rows are all used, and rows that lose the
same move together, so 10 to 40 searches of K steps repair thousands of rows.
"""

from itertools import pairwise

import numpy as np

ROWS_AT_ONCE = 1 << 15  # when the graph is built: temporary arrays that stay in the cache


class Exchange:
    """Labels, prices and the exchange graph. Memory: 8 bytes * (K + 1)^2 beside the candidates.

    labels: int [N]. prices: float64 [K]. candidates: int [N, C], values: float [N, C] = v(i, candidate), -inf for
    none; every row's label is among its candidates. lower, upper: int [K] with upper - lower 0 or 1,
    sum lower <= N <= sum upper.
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
        order = np.argsort(labels, kind="stable")
        self._members = np.split(order, np.searchsorted(labels[order], np.arange(1, num_clusters)))
        sizes = np.bincount(labels, minlength=num_clusters)
        self._excess = np.append(sizes - self._wanted, 0)  # none at the hub
        self._loss = np.full([num_clusters + 1] * 2, np.inf)  # the cost of each edge
        self._own = np.empty(len(labels))  # v(i, l_i)
        for start in range(0, len(order), ROWS_AT_ONCE):
            self._enter(order[start : start + ROWS_AT_ONCE])
        self._loss[smaller, self._hub] = self._loss[self._hub, larger] = 0.0

    @property
    def prices(self):
        """float64 [K]."""
        return self._prices[: self._hub]

    def balance(self):
        """Move rows until every size is as wanted. True when done, False when the candidates leave no way."""
        while (self._excess > 0).any():
            paths = self._shortest_paths()
            if not paths:
                return False
            for path, losses in paths:
                # An earlier path may have used up the rows that this one would have moved, or emptied its source.
                if self._excess[path[0]] > 0 and losses == self._losses_along(path):
                    self._move_along(path)
        return True

    def _shortest_paths(self):
        """Paths to each undersized cluster from its nearest oversized one, nearest first, with the losses on them.

        Dijkstra on reduced costs from all oversized clusters at once. Afterwards the prices make all paths free.
        """
        f, loss = self._prices, self._loss
        distance = np.where(self._excess > 0, 0.0, np.inf)
        open_distance = distance.copy()  # inf once a node is settled
        parent = np.full(len(f), -1)
        settled, short = [], np.count_nonzero(self._excess < 0)
        sinks = []
        while len(sinks) < short:
            node = int(open_distance.argmin())
            if open_distance[node] == np.inf:
                break
            reached = open_distance[node]
            settled.append(node)
            if self._excess[node] < 0:
                sinks.append(node)
            # max(.., reached): prices are exact only to rounding, and a settled node must not be opened again
            offer = np.maximum(loss[node] - f + (f[node] + reached), reached)
            better = np.flatnonzero(offer < distance)
            distance[better] = open_distance[better] = offer[better]
            parent[better] = node
            open_distance[node] = np.inf
        f[settled] += distance[settled] - reached
        paths = [self._path(parent, sink) for sink in sinks]
        return [(path, self._losses_along(path)) for path in paths]

    @staticmethod
    def _path(parent, node):
        path = [node]
        while parent[node] >= 0:
            node = int(parent[node])
            path.append(node)
        return path[::-1]

    def _losses_along(self, path):
        return [self._loss[edge] for edge in pairwise(path)]

    def _move_along(self, path):
        """As many rows along each edge as lose the same, none further than sizes allow."""
        moves = [(k, to, self._movers(k, to)) for k, to in pairwise(path) if self._hub not in (k, to)]
        amount = min(self._excess[path[0]], -self._excess[path[-1]], *(len(rows) for _, _, rows in moves))
        if self._hub in path:
            amount, at = 1, path.index(self._hub)
            self._want(path[at - 1], +1)
            self._want(path[at + 1], -1)
        moves = [(k, to, rows[:amount]) for k, to, rows in moves]
        for k, to, rows in moves:
            self.labels[rows] = to
            self._leave(k, rows)
        for _, to, rows in moves:
            self._members[to] = np.append(self._members[to], rows)
            self._enter(rows)
        self._excess[path[0]] -= amount
        self._excess[path[-1]] += amount

    def _want(self, cluster, change):
        self._wanted[cluster] += change
        self._loss[cluster, self._hub] = 0.0 if self._wanted[cluster] < self._upper[cluster] else np.inf
        self._loss[self._hub, cluster] = 0.0 if self._wanted[cluster] > self._lower[cluster] else np.inf

    def _movers(self, k, to):
        """The rows of cluster k that lose least by going to another one."""
        at, column = np.nonzero(self._candidates[self._members[k]] == to)
        rows = self._members[k][at]
        return rows[self._own[rows] - self._values[rows, column] == self._loss[k, to]]

    def _enter(self, rows):
        """Rows have come to their clusters: what each would lose by going on, where it is the least so far."""
        labels, candidates, values = self.labels[rows, None], self._candidates[rows], self._values[rows]
        self._own[rows] = np.max(np.where(candidates == labels, values, -np.inf), axis=1)
        losses = np.where(candidates == labels, np.inf, self._own[rows, None] - values)
        np.minimum.at(self._loss.reshape(-1), (labels * len(self._loss) + candidates).ravel(), losses.ravel())

    def _leave(self, k, rows):
        """Rows have left cluster k: the least loss anew on those edges where it was theirs."""
        self._members[k] = self._members[k][self.labels[self._members[k]] == k]
        candidates = self._candidates[rows]
        stale = np.zeros(len(self._loss), bool)
        stale[candidates[self._own[rows, None] - self._values[rows] == self._loss[k, candidates]]] = True
        self._loss[k, stale] = np.inf
        candidates = self._candidates[self._members[k]]
        at, column = np.nonzero(stale[candidates])
        rows = self._members[k][at]
        np.minimum.at(self._loss[k], candidates[at, column], self._own[rows] - self._values[rows, column])
