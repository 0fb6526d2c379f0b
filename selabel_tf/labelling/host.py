"""Row blocks in main memory: NumPy in one thread per core, in pieces that stay in the cache between operations.

TensorFlow runs one operation at a time over a whole block, which then travels through memory once for each: on a CPU
that takes several times as long. All functions here take float32 arrays [n, K] and give sums over their rows.
"""

import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import threadpoolctl

PIECE = 2**20  # entries worked on at a time, 4 MiB: smaller ones have the threads wait for the interpreter's lock
LEAST_ROWS = 512  # of a piece of a kernel, where there are many clusters: each piece adds K numbers to the sums
PIECES = 4  # taken by a thread at once, for the same reason
LARGE = 32.0  # rows whose largest log p is beyond this are not normalised
SMALLEST_EXPONENT = np.float32(-64.0)  # exp of less counts as 1.6e-28: no denormal number, which CPUs are slow at


class Host:
    """Threads, each with room for one piece. A context: BLAS keeps to one thread meanwhile, as ours are the cores."""

    def __enter__(self):
        self._pool = ThreadPoolExecutor(cores())
        self._own = threading.local()
        self._limit = one_blas_thread()
        return self

    def __exit__(self, *exception):
        self._pool.shutdown(cancel_futures=True)
        self._limit.restore_original_limits()

    def plan_sums(self, block, lambda_, log_alpha, kernel=None):
        """With S the row softmax of lambda log p + log_alpha, and M_i and x_ik as in `sinkhorn`: sums over rows of

        S [K], M [], sum_k S_ik x_ik [].  kernel: float32 [n, K] to be filled with exp(x), or None.
        All are NaN if a score is not finite.
        """
        prices = np.asarray(log_alpha / lambda_, np.float32)
        largest = np.abs(prices).max() + LARGE
        ones, zeros = np.ones(block.shape[1], np.float32), np.zeros(block.shape[1], np.float32)

        def work(log_p, rows):
            with np.errstate(invalid="ignore"):
                if np.isnan(np.vecdot(log_p, zeros).sum()):  # zero times infinity
                    return np.full(len(zeros), np.nan), np.nan, np.nan
            scores = np.add(log_p, prices, out=self._room(log_p.shape))
            best, likeliest = scores.max(axis=1), 0.0
            if np.abs(best).max() > largest:  # prices drown in log p: take its maximum out first, which is exact
                likeliest = log_p.max(axis=1)
                np.subtract(log_p, likeliest[:, None], out=scores)
                scores += prices
                best = scores.max(axis=1)
            scores -= best[:, None]
            scores *= np.float32(lambda_)
            np.clip(scores, SMALLEST_EXPONENT, 0, out=scores)  # faster than np.maximum
            plan = np.exp(scores, out=self._room(log_p.shape, "plan") if kernel is None else kernel[rows])
            inverse = 1 / np.vecdot(plan, ones)
            best_score = lambda_ * (best.astype(np.float64) + likeliest).sum()
            excess = (np.vecdot(plan, scores) * inverse).sum(dtype=np.float64)
            return (inverse @ plan).astype(np.float64), best_score, excess

        return self._sums(work, [block])

    def kernel_sums(self, blocks, scaling):
        """M^T (1 / (M scaling)), float64 [K], of kernel blocks."""

        def work(piece, _):
            piece = self._float32(piece)
            # Row by row, as memory is read fastest; the second product then finds the piece in the cache.
            return (((1 / np.vecdot(piece, scaling)) @ piece).astype(np.float64),)

        return self._sums(work, blocks, LEAST_ROWS)[0]

    def kernel_certificate(self, blocks, scaling):
        """With S the rows of M diag(scaling), each divided by its sum: sums over rows of max_k log(M_ik scaling_k)

        and of sum_k S_ik log(M_ik scaling_k) less that.
        """
        ones = np.ones(len(scaling), np.float32)

        def work(piece, _):
            plan = np.multiply(self._float32(piece), scaling, out=self._room(piece.shape, "shares"))
            best = np.log(plan.max(axis=1)).astype(np.float64)
            mean = np.vecdot(plan, np.log(plan, out=self._room(piece.shape))) / np.vecdot(plan, ones)
            return best.sum(), mean.sum(dtype=np.float64) - best.sum()

        return self._sums(work, blocks)

    def large_shares(self, blocks, scaling, threshold):
        """Shares M_ik scaling_k / (M scaling)_i above `threshold`, row by row, by blocks:

        yields how many there are in each row, [n], and for all of them columns and values.
        """
        at_base = (scaling == 1).all()

        def work(piece, _):
            piece = self._float32(piece)
            sums = np.vecdot(piece, scaling)
            shares = piece if at_base else np.multiply(piece, scaling, out=self._room(piece.shape, "shares"))
            large = np.flatnonzero((shares > (threshold * sums)[:, None]).ravel())
            rows, columns = np.divmod(large, len(scaling))
            values = shares.ravel()[large] / sums[rows]
            return np.bincount(rows, minlength=len(piece)), columns.astype(np.int32), values

        return self._pieces(work, blocks)

    def gaps(self, block):
        """(sum over rows of the mean of row maximum - log p, max_i(log p_ik - row maximum) [K]); NaN if not finite."""
        mean = np.full(block.shape[1], 1 / block.shape[1], np.float32)

        def work(log_p, _):
            with np.errstate(invalid="ignore", over="ignore"):
                below = np.subtract(log_p, log_p.max(axis=1, keepdims=True), out=self._room(log_p.shape))
                spread = -(below @ mean).sum(dtype=np.float64)
            if not np.isfinite(spread) and np.isfinite(log_p).all():  # the gap of two large numbers overflows
                np.maximum(below, np.float32(-1e30), out=below)
                spread = -(below @ mean).sum(dtype=np.float64)
            return spread, below.max(axis=0)

        spreads, largest = zip(*self._pieces(work, [block]), strict=True)
        return sum(spreads), np.max(largest, axis=0)

    def _pieces(self, work, blocks):
        """work(piece [m, K], its rows in the block) of all pieces, in their order whichever thread is first."""
        for results in self._pool.map(lambda batch: [work(*piece) for piece in batch], self._batches(blocks)):
            yield from results

    def _sums(self, work, blocks, least_rows=1):
        """The sums of what `work` returns, tuples, over all pieces; always added in the same order."""
        batches = self._batches(blocks, least_rows)
        return _total(self._pool.map(lambda batch: _total(work(*piece) for piece in batch), batches))

    def _batches(self, blocks, least_rows=1):
        """Lists of (piece, its rows in the block), each for one thread."""
        pieces = [
            (block[start : start + rows], slice(start, start + rows))
            for block in blocks
            for rows in [max(least_rows, PIECE // block.shape[1])]
            for start in range(0, len(block), rows)
        ]
        return [pieces[first : first + PIECES] for first in range(0, len(pieces), PIECES)]

    def _float32(self, piece):
        """A piece of a kernel; the upper halves of float32 numbers are kept as uint16."""
        if piece.dtype != np.uint16:
            return piece
        room = self._room(piece.shape).view(np.uint32)
        return np.left_shift(piece, 16, out=room, dtype=np.uint32).view(np.float32)

    def _room(self, shape, name="room"):
        """Uninitialised float32 [m, K], always the same memory in one thread."""
        size = shape[0] * shape[1]
        room = getattr(self._own, name, None)
        if room is None or room.size < size:
            room = np.empty(size, np.float32)
            setattr(self._own, name, room)
        return room[:size].reshape(shape)


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _total(parts):
    """Tuples of sums -> the list of their sums."""
    return [functools.reduce(np.add, values) for values in zip(*parts, strict=True)]


def one_blas_thread():
    """A context, too. Threads of BLAS wait for each other, and for whatever else runs, by counting."""
    return _blas().limit(limits=1, user_api="blas")


@functools.cache
def _blas():
    return threadpoolctl.ThreadpoolController()
