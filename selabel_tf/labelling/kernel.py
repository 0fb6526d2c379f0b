"""The absorbed kernel: a reading of the scores at the speed of memory.

At base scalings a0 the kernel M_ik = exp(lambda log p_ik + a0_k - max_k) is made once. At scalings a near a0 it gives
the column masses of the plan without a logarithm or an exponential of an N x K matrix:

    u = exp(a - a0) [K]      r = M u [N]      m = u * (M^T (1 / r)) / N [K]

Two matrix-vector products on a piece of M that stays in the cache between them, so memory is read once. On a CPU that
is NumPy in one thread per core: its BLAS is several times faster than TensorFlow's matrix-vector product, which is
used where M lies on another device. There no row travels: each device sums its own blocks, and only K numbers meet.

M is float32, or bfloat16 as storage with float32 arithmetic, in memory or in files; what rounding does to the masses is
taken out by `correct`. Entries below 1e-28 are zero: they cannot matter while a - a0 spans at most 44 (then the kernel
is made anew), and denormal numbers, which CPUs are slow at, cannot arise.
"""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import tensorflow as tf

REACH = 44.0  # max - min of a - a0 up to which a kernel serves
NEGLIGIBLE = 1e-28
HOST = "CPU"  # device type whose tensors NumPy can read in place
PIECE = 2**18  # entries of M in one product: few enough that BLAS starts no threads of its own
STACK = 4  # pieces that a thread works on at a time: 4 MiB stay in the cache between the two products


class Kernel:
    """M of all row blocks at one lambda and base log_alpha, and the masses near it.

    form: "float32", "half" or "disk". folder: where "disk" makes a folder of its own; `close` deletes it.
    """

    def __init__(self, form="float32", folder=None):
        self._form, self._folder = form, folder
        self._lambda, self._base, self._correction = None, None, 1.0
        self._blocks, self._number = [], 0

    def holds(self, lambda_, log_alpha):
        """Whether the masses at lambda_ and log_alpha [K] can be read from the kernel as it is."""
        return self._lambda == lambda_ and np.ptp(log_alpha - self._base) <= REACH

    def begin(self, lambda_, log_alpha):
        """From here on `keep` brings the blocks of M at lambda_ and log_alpha [K], in order, replacing the old ones."""
        self._lambda, self._base, self._correction = lambda_, log_alpha, 1.0
        self._number = 0

    def keep(self, block):
        """block: float32 tensor [n, K] of M. The old block of that number goes as the new one comes."""
        if self._number == len(self._blocks):
            self._blocks.append(None)
        self._blocks[self._number] = None
        self._blocks[self._number] = self._stored(block)
        self._number += 1

    def masses(self, log_alpha):
        """Column masses of the plan at log_alpha, float64 [K], sum 1."""
        move = log_alpha - self._base
        scaling = np.exp(move - (move.max() + move.min()) / 2)  # exp(-22) to exp(22)
        masses = scaling * self._sums(scaling.astype(np.float32)) * self._correction
        return masses / masses.sum()

    def correct(self, exact, masses):
        """Where the kernel found `masses` [K], the truth is `exact` [K]: take the difference out from here on."""
        self._correction = self._correction * np.where(
            (exact > 0) & (masses > 0), exact / np.maximum(masses, 1e-300), 1
        )

    def close(self):
        """Let go of M, in memory and on disk."""
        self._blocks, self._lambda = [], None
        if self._form == "disk":
            shutil.rmtree(self._own_folder, ignore_errors=True)

    def _stored(self, block):
        if HOST not in block.device:
            return tf.cast(block, tf.bfloat16) if self._form == "half" else block
        array = np.asarray(block)  # the tensor's own memory
        if self._form == "half":
            # bfloat16 is the upper half of a float32, here rounded to nearest; kept as integers for NumPy
            return ((array.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)
        if self._form == "disk":
            self._own_folder.mkdir(parents=True, exist_ok=True)
            path = self._own_folder / f"{self._number:05d}.float32"
            stored = np.memmap(path, np.float32, "w+", shape=array.shape)
            stored[:] = array
            return stored
        return array

    @property
    def _own_folder(self):
        return Path(self._folder) / "selabel-kernel"  # always the same: what a killed process left goes with the next

    def _sums(self, scaling):
        """M^T (1 / (M scaling)), float64 [K]."""
        stacks, on_devices = [], {}
        for block in self._blocks:
            if isinstance(block, np.ndarray):
                rows = STACK * _rows_per_piece(len(scaling))
                stacks += [block[start : start + rows] for start in range(0, len(block), rows)]
            else:
                with tf.device(block.device):
                    part = _device_sums(tf.cast(block, tf.float32), scaling)
                    before = on_devices.get(block.device)
                    on_devices[block.device] = part if before is None else before + part
        total = np.zeros(len(scaling))
        if stacks:
            workers = min(_cores(), len(stacks))
            bounds = np.linspace(0, len(stacks), workers + 1).astype(int)
            shares = [stacks[a:b] for a, b in pairwise(bounds)]
            with ThreadPoolExecutor(workers) as pool:
                total += sum(pool.map(_host_sums, shares, [scaling] * workers))
        return total + sum(part.numpy() for part in on_devices.values())


def _cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _host_sums(stacks, scaling):
    """One thread's share: M^T (1 / (M scaling)) over its stacks of pieces, float64 [K]."""
    num_clusters = len(scaling)
    total = np.zeros(num_clusters)
    for stack in stacks:
        if stack.dtype == np.uint16:
            stack = np.left_shift(stack, 16, dtype=np.uint32).view(np.float32)
        rows = min(_rows_per_piece(num_clusters), len(stack))
        whole = len(stack) // rows * rows
        for pieces in (stack[:whole].reshape(-1, rows, num_clusters), stack[None, whole:]):
            # NumPy lets go of the interpreter lock once for all pieces, so that the threads seldom wait for it.
            inverse = 1 / np.matmul(pieces, scaling)  # [pieces, rows]
            total += np.matmul(inverse[:, None], pieces).sum((0, 1), dtype=np.float64)
    return total


def _rows_per_piece(num_clusters):
    return max(1, PIECE // num_clusters)


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.float32)])
def _device_sums(block, scaling):
    rows = tf.linalg.matvec(block, scaling)
    return tf.cast(tf.linalg.matvec(block, 1 / rows, transpose_a=True), tf.float64)
