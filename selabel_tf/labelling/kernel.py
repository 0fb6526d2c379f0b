"""The absorbed kernel: a reading of the scores at the speed of memory.

At base scalings a0 the kernel M_ik = exp(lambda log p_ik + a0_k - max_k) is made once. At scalings a near a0 it gives
the column masses of the plan without a logarithm or an exponential of an N x K matrix:

    u = exp(a - a0) [K]      r = M u [N]      m = u * (M^T (1 / r)) / N [K]

Two matrix-vector products on a piece of M that stays in the cache between them, so memory is read once. On a CPU that
is NumPy (`host`): its BLAS is several times faster than TensorFlow's matrix-vector product, which is used where M lies
on another device. There no row travels: each device sums its own blocks, and only K numbers meet. A last pass brings
the certificate from M as well: log(M_ik u_k) is x_ik but for a number per row.

M is float32, or bfloat16 as storage with float32 arithmetic, in memory or in files; what rounding does to the masses is
taken out by `correct`. No entry is below 1.6e-28: such cannot matter while a - a0 spans at most 44 (then the kernel is
made anew), and denormal numbers, which CPUs are slow at, cannot arise.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from selabel_tf.labelling.host import SMALLEST_EXPONENT, Host

REACH = 44.0  # max - min of a - a0 up to which a kernel serves
NEGLIGIBLE = 1e-7  # mass: less than float32 sums lose
FOLDER_PREFIX = ".selabel-kernel-"


class Kernel:
    """M of all row blocks at one lambda and base log_alpha, and the masses near it.

    form: "float32", "half" or "disk". folder: where "disk" makes a folder of its own; `close` deletes it.
    """

    def __init__(self, form="float32", folder=None):
        self._form, self._folder, self._own_folder = form, None if folder is None else Path(folder), None
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
        """block: float32 [n, K] of M, a tensor or an array. The old block of that number goes as the new one comes."""
        if self._number == len(self._blocks):
            self._blocks.append(None)
        self._blocks[self._number] = None
        self._blocks[self._number] = self._stored(block)
        self._number += 1

    def masses(self, log_alpha):
        """Column masses of the plan at log_alpha, float64 [K], sum 1."""
        scaling = self._scaling(log_alpha)
        masses = scaling * self._sums(scaling.astype(np.float32)) * self._correction
        return masses / masses.sum()

    def is_exact(self, log_alpha):
        """Whether the masses at log_alpha are as good as from the scores: M is float32, and its floor is far below."""
        floor = len(log_alpha) * np.exp(np.ptp(log_alpha - self._base) + SMALLEST_EXPONENT)  # of a row's mass, at most
        return self._form != "half" and floor <= NEGLIGIBLE

    def certificate(self, log_alpha):
        """Means over rows, as `sinkhorn` has them: of M_i less what it is at the base, and of sum_k S_ik x_ik."""
        move = log_alpha - self._base
        scaling, num_rows = self._scaling(log_alpha).astype(np.float32), 0
        best = excess = 0.0
        on_host = [block for block in self._blocks if isinstance(block, np.ndarray)]
        for block in self._blocks:
            num_rows += block.shape[0]
            if not isinstance(block, np.ndarray):
                with tf.device(block.device):
                    part = _device_certificate(tf.cast(block, tf.float32), scaling).numpy()
                best, excess = best + part[0], excess + part[1]
        if on_host:
            with Host() as host:
                part = host.kernel_certificate(on_host, scaling)
            best, excess = best + part[0], excess + part[1]
        return best / num_rows + (move.max() + move.min()) / 2, excess / num_rows

    def large_shares(self, log_alpha, threshold, most):
        """Entries of the rows of S = softmax(lambda log p + log_alpha) above `threshold`.

        counts [N] per row; columns and values of all, row by row. None as soon as there are more than `most` in a row
        on average.
        """
        scaling, found = self._scaling(log_alpha).astype(np.float32), []
        num_rows = num_entries = 0
        with Host() as host:
            for block in self._blocks:
                if isinstance(block, np.ndarray):
                    parts = host.large_shares([block], scaling, threshold)
                else:
                    with tf.device(block.device):
                        parts = [_device_large_shares(tf.cast(block, tf.float32), scaling, threshold)]
                for part in parts:
                    found.append([np.asarray(column) for column in part])
                    num_rows, num_entries = num_rows + len(found[-1][0]), num_entries + len(found[-1][1])
                    if num_entries > most * num_rows:
                        return None
        return [np.concatenate(column) for column in zip(*found, strict=True)]

    def correct(self, exact, masses):
        """Where the kernel found `masses` [K], the truth is `exact` [K]: take the difference out from here on."""
        self._correction = self._correction * np.where(
            (exact > 0) & (masses > 0), exact / np.maximum(masses, 1e-300), 1
        )

    def close(self):
        """Let go of M, in memory and on disk."""
        self._blocks, self._lambda = [], None
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)
            self._own_folder = None

    def _stored(self, block):
        if not isinstance(block, np.ndarray):
            return tf.cast(block, tf.bfloat16) if self._form == "half" else block
        if self._form == "half":
            # bfloat16 is the upper half of a float32, here rounded to nearest; kept as integers for NumPy
            return ((block.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)
        if self._form == "disk":
            if self._own_folder is None:  # of this kernel alone: others may work in the same place
                self._folder.mkdir(parents=True, exist_ok=True)
                self._own_folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=self._folder))
            path = self._own_folder / f"{self._number:05d}.float32"
            stored = np.memmap(path, np.float32, "w+", shape=block.shape)
            stored[:] = block
            return stored
        return block

    def _scaling(self, log_alpha):
        """exp(a - a0) [K], of exp(-22) to exp(22)."""
        move = log_alpha - self._base
        return np.exp(move - (move.max() + move.min()) / 2)

    def _sums(self, scaling):
        """M^T (1 / (M scaling)), float64 [K]."""
        on_host, on_devices = [], {}
        for block in self._blocks:
            if isinstance(block, np.ndarray):
                on_host.append(block)
            else:
                with tf.device(block.device):
                    part = _device_sums(tf.cast(block, tf.float32), scaling)
                    before = on_devices.get(block.device)
                    on_devices[block.device] = part if before is None else before + part
        total = sum(part.numpy() for part in on_devices.values())
        if on_host:
            with Host() as host:
                total = total + host.kernel_sums(on_host, scaling)
        return total


def remove_leftovers(folder):
    """Removes what killed processes left of their kernels in `folder`. Nobody may be solving there meanwhile."""
    for path in Path(folder).glob(f"{FOLDER_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.float32)])
def _device_sums(block, scaling):
    rows = tf.linalg.matvec(block, scaling)
    return tf.cast(tf.linalg.matvec(block, 1 / rows, transpose_a=True), tf.float64)


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.float32)])
def _device_certificate(block, scaling):
    plan = block * scaling
    logs = tf.math.log(plan)
    best = tf.cast(tf.reduce_max(logs, axis=1), tf.float64)
    mean = tf.cast(tf.reduce_sum(plan * logs, axis=1) / tf.reduce_sum(plan, axis=1), tf.float64)
    return tf.stack([tf.reduce_sum(best), tf.reduce_sum(mean - best)])


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([None], tf.float32),
        tf.TensorSpec([], tf.float32),
    ]
)
def _device_large_shares(block, scaling, threshold):
    shares = block * scaling / tf.linalg.matvec(block, scaling)[:, None]
    is_large = shares > threshold
    places = tf.where(is_large)
    counts = tf.reduce_sum(tf.cast(is_large, tf.int64), axis=1)
    return counts, tf.cast(places[:, 1], tf.int32), tf.gather_nd(shares, places)
