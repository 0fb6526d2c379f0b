"""Where the scores of a head live: what is needed is computed before training starts, and what fits is picked.

Features Z [N, D] of every view are in memory throughout a label pass. Of the N x K scores that one head makes from them

    float32     log p is kept in memory, and for large K the solver's kernel beside it     4 or 8 bytes per score
    recompute   log p is made from Z, block by block, at the few readings that need it;
                only the kernel stays, in the place that the scores would have             4, or none for small K
    half        as recompute, with the kernel in bfloat16 (float32 arithmetic)             2
    disk        as recompute, with the kernel in files, deleted afterwards                 4, on disk

"Large" is above sinkhorn.NEWTON_CLUSTERS: up to it there is no kernel, and nothing to keep in half precision or on
disk.
"""

import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from selabel_tf.labelling import sinkhorn
from selabel_tf.labelling.scores import ROWS_PER_BLOCK

KINDS = ("float32", "recompute", "half", "disk")
WORKING_COPIES = 8  # of one row block, within an exact reading


@dataclass(frozen=True)
class StoragePlan:
    """kind: one of KINDS. bytes_needed: of memory, features included. reason: one sentence for a person."""

    kind: str
    bytes_needed: int
    reason: str


def plan_storage(
    num_examples, num_clusters, feature_size, memory_bytes, disk_bytes, *, views=1, kind="auto"
) -> StoragePlan:
    """Picks where the scores of a head of `num_clusters` live, or refuses with the numbers.

    Args:
        num_examples, num_clusters, feature_size: N, the largest K of the heads, D.
        memory_bytes: of memory to be had now. disk_bytes: of disk, 0 where no folder may be used.
        views: of every image; each has features of its own.
        kind: one of KINDS to insist on it, "auto" for the first that fits.
    """
    if kind not in ("auto", *KINDS):
        raise ValueError(f"Unknown storage {kind!r}. Available: auto, {', '.join(KINDS)}.")
    if kind == "disk" and disk_bytes == 0:
        raise ValueError('storage="disk" needs a folder to put its files in: give scratch=, or another storage.')
    scores = 4 * num_examples * num_clusters
    has_kernel = num_clusters > sinkhorn.NEWTON_CLUSTERS
    fixed = 4 * num_examples * feature_size * views
    fixed += WORKING_COPIES * 4 * min(ROWS_PER_BLOCK, num_examples) * num_clusters
    in_memory = {
        "float32": fixed + scores * (2 if has_kernel else 1),
        "recompute": fixed + (scores if has_kernel else 0),
        "half": fixed + (scores // 2 if has_kernel else 0),
        "disk": fixed,
    }
    on_disk = {"disk": scores if has_kernel else 0}
    fits = [k for k in KINDS if in_memory[k] <= memory_bytes and on_disk.get(k, 0) <= disk_bytes]
    what = f"{num_examples} x {num_clusters} scores on {views} x {feature_size} features"
    have = "unknown" if math.isinf(memory_bytes) else _size(memory_bytes)
    if not fits if kind == "auto" else kind not in fits:
        needs = ", ".join(
            f"{k} {_size(in_memory[k])}" + (f" and {_size(on_disk[k])} of disk" if k in on_disk else "")
            for k in (KINDS if kind == "auto" else (kind,))
        )
        remedy = f"storage={fits[0]!r} would fit. Or use" if fits else "Use"
        raise ValueError(
            f"A label pass over {what} needs memory: {needs}; there are {have}, and {_size(disk_bytes)} of disk to "
            f"use. {remedy} fewer clusters, views or examples, or a machine with more memory."
        )
    chosen = fits[0] if kind == "auto" else kind
    how = {
        "float32": "kept as float32 in memory",
        "recompute": "recomputed from features" + (", with a float32 kernel in memory" if has_kernel else ""),
        "half": "recomputed from features" + (", with a bfloat16 kernel in memory" if has_kernel else ""),
        "disk": "recomputed from features" + (", with a float32 kernel on disk" if has_kernel else ""),
    }[chosen]
    why = f"label.storage={chosen}" if kind != "auto" else "the fastest way that fits"
    disk = f" and {_size(on_disk[chosen])} of disk" if on_disk.get(chosen) else ""
    reason = f"{what}: {how}, {_size(in_memory[chosen])} of the {have} available{disk} ({why})"
    return StoragePlan(chosen, in_memory[chosen], reason)


class HeadScores:
    """log p of one head: a re-iterable of row blocks [n_b, K], for the solver and the roundings.

    Args:
        score_block: (start, stop) -> log_p [stop - start, K] of those rows.
        num_rows: N.
        kind: one of KINDS.
        scratch: folder for the files of "disk".
        devices: block b is made, and stays, on device b modulo their number; the current one if there are none.
    """

    def __init__(self, score_block, num_rows, kind, *, scratch=None, devices=()):
        self._score_block, self.num_rows, self._devices = score_block, num_rows, tuple(devices)
        self.kernel_form = (kind if kind in ("half", "disk") else "float32", scratch)
        self._kept = list(self._made()) if kind == "float32" else None

    def __iter__(self):
        return self._made() if self._kept is None else iter(self._kept)

    def _made(self):
        for number, start in enumerate(range(0, self.num_rows, ROWS_PER_BLOCK)):
            device = self._devices[number % len(self._devices)] if self._devices else None
            with tf.device(device):
                block = self._score_block(start, min(start + ROWS_PER_BLOCK, self.num_rows))
            yield block


def available_memory():
    """Bytes of main memory that this process can still have; infinity where the system does not say.

    The smallest of what Linux calls available and what a container's limit leaves.
    """
    amounts = [math.inf]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        amounts += [
            1024 * int(line.split()[1]) for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")
        ]
    elif "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        amounts.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.is_file() and used.is_file() and limit.read_text().strip().isdigit():
        amounts.append(int(limit.read_text()) - int(used.read_text()))
    return min(amounts)


def available_disk(folder):
    """Bytes free where `folder` is or will be; 0 for None."""
    if folder is None:
        return 0
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _size(count):
    """Bytes for a person."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.1f} {unit}" if unit != "bytes" else f"{count} bytes"
        count /= 1024
