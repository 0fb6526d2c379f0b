"""Does the exported file give the features that Keras gives? Measured on images, before the export gets its number.

For features f [n, D] of the file and g [n, D] of Keras:

    largest difference = max |f - g| / max |g|
    cosine_i           = <f_i, g_i> / (|f_i| |g_i|)         two zero rows agree: 1; a zero row against another: 0
    kNN                  top-1 accuracy of either, by a function that is handed in
    size                 bytes of the file or folder, and the share of the float file where that is known
    latency              seconds per image, in a process with one thread and in one with all cores
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from ..features import extract
from . import runtimes

SMALL_FILE = 2**20  # bytes of a float file below which its structure, not its weights, decides the size


@dataclass(frozen=True)
class Bounds:
    """What an export must keep; None: not asked."""

    largest_difference: float | None = None
    smallest_cosine: float | None = None
    knn_loss: float | None = None  # of accuracy: 0.01 is one point, in either direction
    share_of_float: float | None = None


EXACT = Bounds(largest_difference=1e-4)
HALF = Bounds(smallest_cosine=0.9999)
BOUNDS = {
    "none": EXACT,
    "float16": HALF,
    "dynamic": Bounds(smallest_cosine=0.98, knn_loss=0.01),
    "int8": Bounds(smallest_cosine=0.98, knn_loss=0.01, share_of_float=0.3),
}


def bounds(quantize="none", precision="float32") -> Bounds:
    """The bounds of an export. A network that Keras itself runs in half precision cannot be met closer than that."""
    return HALF if quantize == "none" and precision != "float32" else BOUNDS[quantize]


@dataclass(frozen=True)
class Parity:
    """What was measured; None: not measured (no classes for kNN, no float file, no timing)."""

    num_images: int
    largest_difference: float
    smallest_cosine: float
    mean_cosine: float
    bytes: int
    knn_keras: float | None = None
    knn_file: float | None = None
    float_bytes: int | None = None
    seconds_one_thread: float | None = None
    seconds_all_cores: float | None = None

    @property
    def share_of_float(self):
        return self.bytes / self.float_bytes if self.float_bytes else None

    def facts(self) -> dict:
        """Plain values, for JSON."""
        return {**asdict(self), "share_of_float": self.share_of_float}

    def breaches(self, bounds) -> list[str]:
        """Every bound that is not kept, in words; a value that is no number keeps none."""
        found = []

        def ask(kept, text):
            if not kept:
                found.append(text)

        if bounds.largest_difference is not None:
            what = f"largest difference {self.largest_difference:.2g}, allowed {bounds.largest_difference:g}"
            ask(self.largest_difference <= bounds.largest_difference, what)
        if bounds.smallest_cosine is not None:
            what = f"smallest cosine {self.smallest_cosine:.6f}, needed {bounds.smallest_cosine:g}"
            ask(self.smallest_cosine >= bounds.smallest_cosine, what)
        if bounds.knn_loss is not None and self.knn_file is not None:
            what = (
                f"kNN accuracy {100 * self.knn_file:.2f}% against {100 * self.knn_keras:.2f}%, "
                f"allowed {100 * bounds.knn_loss:g} point apart"
            )
            ask(abs(self.knn_file - self.knn_keras) <= bounds.knn_loss + 1e-12, what)
        if bounds.share_of_float is not None and (self.float_bytes or 0) >= SMALL_FILE:
            what = f"{self.share_of_float:.3f} of the float file's size, allowed {bounds.share_of_float:g}"
            ask(self.share_of_float <= bounds.share_of_float, what)
        return found


def measure(folder, backbone, batches, num_images, *, knn=None, float_bytes=None, timed=True, on_batch=None) -> Parity:
    """Runs the export in `folder` beside `backbone` and compares.

    Args:
        batches: dataset of (images, index), prepared as in evaluation, each index of 0..num_images-1 once.
        knn: features [n, D] -> accuracy, or None.
        float_bytes: size of the same export without quantisation.
        on_batch: called with the number of images done, of 2 * num_images.
    """
    run = runtimes.load(folder)
    tell = on_batch or (lambda done: None)
    ours = extract(lambda images: tf.cast(backbone(images, training=False), tf.float32), batches, num_images, tell)
    theirs, done = np.empty_like(ours), 0
    for images, index in batches:  # not within a graph: on one core it would wait for the file's own graph for ever
        theirs[index.numpy()] = run(images.numpy())["features"]
        done += len(images)
        tell(num_images + done)
    shape = tuple(batches.element_spec[0].shape[1:])
    seconds = [runtimes.seconds_per_image(folder, shape, threads) if timed else None for threads in (1, os.cpu_count())]
    cosines = row_cosines(theirs, ours)
    return Parity(
        num_images=num_images,
        largest_difference=float(np.max(np.abs(theirs - ours)) / max(np.max(np.abs(ours)), np.finfo(np.float32).tiny)),
        smallest_cosine=float(cosines.min()),
        mean_cosine=float(cosines.mean()),
        bytes=size_of(folder),
        knn_keras=None if knn is None else knn(ours),
        knn_file=None if knn is None else knn(theirs),
        float_bytes=float_bytes,
        seconds_one_thread=seconds[0],
        seconds_all_cores=seconds[1],
    )


def row_cosines(f, g) -> np.ndarray:
    """Cosine of the rows of f and g [n, D], float64 [n]."""
    f, g = np.asarray(f, np.float64), np.asarray(g, np.float64)
    lengths = np.linalg.norm(f, axis=1) * np.linalg.norm(g, axis=1)
    both_zero = ~f.any(axis=1) & ~g.any(axis=1)
    return np.where(both_zero, 1.0, (f * g).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))


def size_of(folder) -> int:
    """Bytes of the exported file; of a SavedModel, which is a folder, of all its files."""
    folder = Path(folder)
    file = next((folder / name for name in runtimes.LOADERS if (folder / name).is_file()), folder)
    if file.name != "saved_model.pb":
        return file.stat().st_size
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
