"""Where the scores of a head live: what is needed is computed before training starts, and what fits is picked.

Features Z [N, D] of every view are in main memory throughout a label pass. The N x K scores that one head makes from
them live on the GPUs, where there are any and it fits, else in main memory:

    float32     log p is kept, and for large K the solver's kernel beside it               4 or 8 bytes per score
    recompute   log p is made from Z, block by block, at the few readings that need it;
                only the kernel stays, in the place that the scores would have             4, or none for small K
    half        as recompute, with the kernel in bfloat16 (float32 arithmetic)             2
    disk        as recompute, with the kernel in files, deleted afterwards                 4, on disk

"Large" is above sinkhorn.NEWTON_CLUSTERS: up to it there is no kernel, and nothing to keep in half precision or on
disk. What the network takes of a GPU is known only once it trains, so scores are given a share of it, GPU_SHARE.
"""

import math
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from selabel_tf.labelling import sinkhorn
from selabel_tf.labelling.scores import ROWS_PER_BLOCK

KINDS = ("float32", "recompute", "half", "disk")
CHOICES = {"auto": KINDS, "exact": ("float32", "recompute", "disk")} | {kind: (kind,) for kind in KINDS}
CONTROL_GROUPS = {  # root -> limit, use, and what of the use are files that were read; by version 2 and 1
    "/sys/fs/cgroup": ("memory.max", "memory.current", ("inactive_file", "active_file")),
    "/sys/fs/cgroup/memory": (
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
}
WORKING_COPIES = 8  # of one row block, within an exact reading
GPU_SHARE = 0.7


@dataclass(frozen=True)
class StoragePlan:
    """kind: one of KINDS. bytes_needed: of main memory, features included. reason: one sentence for a person.
    gpu_bytes: of all GPUs, 0 where scores are in main memory."""

    kind: str
    bytes_needed: int
    reason: str
    gpu_bytes: int = 0


NO_SCORES = StoragePlan(KINDS[0], 0, "No scores are made, and no memory is needed for them: the labels are given")


@dataclass(frozen=True)
class _Way:
    """Bytes that a kind needs in one of the two places."""

    kind: str
    memory: int
    gpu: int
    disk: int


def plan_storage(
    num_examples, num_clusters, feature_size, memory_bytes, disk_bytes, *, gpu_bytes=0, views=1, kind="auto"
) -> StoragePlan:
    """Picks where the scores of a head of `num_clusters` live, or refuses with the numbers.

    Args:
        num_examples, num_clusters, feature_size: N, the largest K of the heads, D.
        memory_bytes: of memory to be had now. disk_bytes: of disk, 0 where no folder may be used.
        gpu_bytes: that scores may have of all GPUs together, 0 for none.
        views: of every image; each has features of its own.
        kind: one of KINDS to insist on it, "auto" for the first that fits, "exact" for the first of those that fit and
            give the same bits: all but "half".
    """
    if kind not in CHOICES:
        raise ValueError(f"Unknown storage {kind!r}. Available: {', '.join(CHOICES)}.")
    if kind == "disk" and disk_bytes == 0:
        raise ValueError('storage="disk" needs a folder to put its files in: give scratch=, or another storage.')
    has_kernel = num_clusters > sinkhorn.NEWTON_CLUSTERS
    ways = _ways(num_examples, num_clusters, feature_size * views, has_kernel)
    fits = [w for w in ways if w.memory <= memory_bytes and w.disk <= disk_bytes and w.gpu <= gpu_bytes]
    wanted = [way for way in fits if way.kind in CHOICES[kind]]
    what = f"{num_examples} x {num_clusters} scores on {views} x {feature_size} features"
    have, gpu = _size(memory_bytes), f"{_size(gpu_bytes)} for scores on the GPU"
    if not wanted:
        needs = ", ".join(
            f"{way.kind} {_size(way.memory)}" + (f" and {_size(way.disk)} of disk" if way.kind == "disk" else "")
            for way in ways
            if not way.gpu and way.kind in CHOICES[kind]
        )
        remedy = f"storage={fits[0].kind!r} would fit. Or use" if fits else "Use"
        there = f"there are {have}{f', {gpu}' if gpu_bytes else ''}, and {_size(disk_bytes)} of disk to use"
        raise ValueError(
            f"A label pass over {what} needs memory: {needs}; {there}. {remedy} fewer clusters, views or examples, or "
            "a machine with more memory."
        )
    way = wanted[0]
    place = "on the GPU" if way.gpu else "in memory"
    how = {
        "float32": f"kept as float32 {place}",
        "recompute": "recomputed from features" + f", with a float32 kernel {place}" * has_kernel,
        "half": "recomputed from features" + f", with a bfloat16 kernel {place}" * has_kernel,
        "disk": "recomputed from features" + ", with a float32 kernel on disk" * has_kernel,
    }[way.kind]
    takes = f"{_size(way.gpu)} of {_size(gpu_bytes)}" if way.gpu else f"{_size(way.memory)} of the {have} available"
    disk = f" and {_size(way.disk)} of disk" if way.disk else ""
    why = f"label.storage={kind}" if kind in KINDS else "the fastest way that fits"
    return StoragePlan(way.kind, way.memory, f"{what}: {how}, {takes}{disk} ({why})", way.gpu)


def _ways(num_examples, num_clusters, features_per_example, has_kernel):
    """All there are, the fastest first."""
    scores = 4 * num_examples * num_clusters
    features = 4 * num_examples * features_per_example
    at_work = WORKING_COPIES * 4 * min(ROWS_PER_BLOCK, num_examples) * num_clusters
    kept = {
        "float32": at_work + scores * (2 if has_kernel else 1),
        "recompute": at_work + scores * has_kernel,
        "half": at_work + scores // 2 * has_kernel,
        "disk": at_work,
    }
    on_gpu = [_Way(kind, features, kept[kind], 0) for kind in KINDS if kind != "disk"]
    return on_gpu + [_Way(k, features + kept[k], 0, scores * has_kernel if k == "disk" else 0) for k in KINDS]


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

    The smallest of what Linux calls available and what the limits of the control groups leave that the process is in:
    those of a container, a batch system or a service. Files that were read are in memory too, and make room when it is
    needed: after a look at all images they would be most of what a container has.
    """
    amounts = [math.inf]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        amounts += [
            1024 * int(line.split()[1]) for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")
        ]
    elif "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        amounts.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for root, (*names, cached) in CONTROL_GROUPS.items():
        for group in _control_groups(Path(root)):
            files = [group / name for name in (*names, "memory.stat")]
            if all(file.is_file() for file in files):
                limit, used, stat = (file.read_text() for file in files)
                files_read = sum(int(n) for kind, n in map(str.split, stat.splitlines()) if kind in cached)
                if limit.strip().isdigit():  # not "max"
                    amounts.append(int(limit) - int(used) + files_read)
    return min(amounts)


def _control_groups(root):
    """Yields the folders under `root` of the groups that this process is in, each within the next, `root` last."""
    listed = Path("/proc/self/cgroup")
    lines = listed.read_text().splitlines() if listed.is_file() else []
    for line in lines:  # 0::/a/b of version 2, 4:memory:/a/b of version 1
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") if root.name == "memory" else not controllers:
            group = root / path.strip("/")
            yield from (folder for folder in (group, *group.parents) if root in folder.parents)
    yield root


def score_devices(strategy):
    """Where scores may live: the devices that a model trains on; without a strategy, the one that TensorFlow takes."""
    if strategy.num_replicas_in_sync > 1 or isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return tuple(strategy.extended.worker_devices)
    return tuple(device.name for device in tf.config.list_logical_devices("GPU")[:1]) or ("/CPU:0",)


def available_gpu_memory(devices):
    """Bytes that scores may have of the GPUs among `devices` together: GPU_SHARE of their memory. 0 without GPUs.

    TensorFlow tells a GPU's use and not its size, so the driver's own tool is asked; infinity where that does not say.
    GPUs of differing sizes count as the smallest.
    """
    gpus = sum("GPU" in device for device in devices)
    if not gpus:
        return 0
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
        mebibytes = min(int(line) for line in told.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return math.inf
    return int(GPU_SHARE * gpus * mebibytes * 2**20)


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
    if math.isinf(count):
        return "unknown"
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.1f} {unit}" if unit != "bytes" else f"{count} bytes"
        count /= 1024
