"""Sets of images in which every example has an index that never changes.

Index i means the same image across runs, machines and shuffles: arrays keep their order, folders are sorted
by relative path, TFDS examples by (shard, position in the shard). `ids[i]` is the name a person would look
for. True classes, where a set has them, serve evaluation only and never enter a batch.
"""

import functools
import hashlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from selabel_tf.data import augment, pipeline
from selabel_tf.data.folder import open_folder
from selabel_tf.data.image_header import read_size, stamp
from selabel_tf.data.multi_crop import MultiCrop, small_version
from selabel_tf.data.readers import ArrayReader, FileReader, by_threads

RAM_LIMIT = 2 * 1024**3  # bytes of decoded pixels up to which a TFDS set is held in RAM


class Source:
    """Images by index, their ids and classes, and the augmentation they are shown with.

    Made by `from_arrays`, `from_tfds`, `from_folder` or `digits`. Only `next_epoch` and `batch_sizes` change.
    """

    def __init__(self, reader, *, name, ids, classes: Callable, class_names, augmentation=None, small_crops=None):
        if len(set(ids)) != len(ids):
            twice = next(one for one, other in zip(sorted(ids), sorted(ids)[1:], strict=False) if one == other)
            raise ValueError(f"The id {twice!r} occurs more than once. Every example needs an id of its own.")
        self.name = name
        self.num_examples = reader.num_examples
        self.ids = tuple(ids)
        self.class_names = class_names
        self._reader = reader
        self._read_classes = classes  # () -> int64 [N] or None; asked once, when first wanted
        if augmentation is None and None not in reader.image_shape:
            augmentation = augment.make("none", reader.image_shape)
        self._augmentation = augmentation
        self._small_crops = small_crops  # (Augmentation, how many), or None
        self._next_epoch = 0
        self.batch_sizes = ()  # of all `train_batches` asked for, the last of them last

    @property
    def image_shape(self) -> tuple:
        """(h, w, c) of the images in a batch; (None, None, c) while images differ in size and none is set."""
        return tuple((self._augmentation or self._reader).image_shape)

    @property
    def stored_shape(self) -> tuple:
        """(h, w, c) of the images before any augmentation; (None, None, c) where they differ in size."""
        return tuple(self._reader.image_shape)

    @property
    def in_memory(self) -> bool:
        """Whether all images are decoded already."""
        return isinstance(self._reader, ArrayReader)

    @property
    def policy(self) -> str:
        return "none" if self._augmentation is None else self._augmentation.name

    @functools.cached_property
    def classes(self) -> np.ndarray | None:
        """True classes int64 [N], or None. A TFDS set that is not in RAM is read through for them, once."""
        return self._read_classes()

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of ids and content: pixels of arrays, else length and checksum of each encoded image.

        The checksum of a file is that of its first and last kilobyte, that of a TFDS example is in its record.
        """
        digest = hashlib.sha256("\0".join(self.ids).encode("utf-8", "surrogateescape"))  # file names may be any bytes
        digest.update(b"\0\0")
        digest.update(self._reader.content())
        return digest.hexdigest()

    @property
    def next_epoch(self) -> int:
        """The epoch that the next iteration over `train_batches` will show; that iteration then adds one.

        Keras may look at one batch before the first epoch to build a model, and that look counts. Whoever
        needs exact epochs sets this when an epoch begins, as `SelfLabelCallback` does.
        """
        return self._next_epoch

    @next_epoch.setter
    def next_epoch(self, epoch):
        self._next_epoch = pipeline.whole_number("next_epoch", epoch, 0)

    def augmented(self, policy, size=None, *, mean=None, std=None, more="none") -> "Source":
        """The same images under another policy, output size and normalisation; no small crops."""
        made = augment.make(policy, self._reader.image_shape, size=size, mean=mean, std=std, more=more)
        return self._with(self._reader, self.ids, lambda: self.classes, made)

    def with_small_crops(self, count, size, area=(0.08, 0.4)) -> "Source":
        """The same source, whose training batches are ((images, small crops [B, count, size, size, c]), index).

        area: range of the share of the image that a small crop shows. The policy's other steps are theirs as well.
        """
        count, size = pipeline.whole_number("count", count, 1), pipeline.whole_number("size", size, 1)
        augmentation = self._ready_augmentation()
        small = small_version(augmentation, size, area)
        return self._with(self._reader, self.ids, lambda: self.classes, augmentation, (small, count))

    def subset(self, rows) -> "Source":
        """The examples of these rows, in this order, with index 0..n-1 anew; ids stay."""
        rows = np.asarray(rows)
        if rows.ndim != 1 or len(rows) == 0 or rows.dtype.kind not in "iu":
            raise ValueError(
                f"rows must be a non-empty list of row numbers, got {rows.dtype} of shape {rows.shape}. "
                "For a mask use np.flatnonzero(mask)."
            )
        if rows.min() < 0 or rows.max() >= self.num_examples:
            raise ValueError(
                f"rows must lie in 0..{self.num_examples - 1}, got {rows.min()}..{rows.max()}. "
                f"This source has {self.num_examples} examples."
            )
        ids = [self.ids[row] for row in rows]
        classes = lambda: None if self.classes is None else self.classes[rows]  # noqa: E731
        return self._with(self._reader.take(rows), ids, classes, self._augmentation, self._small_crops)

    def first_per_class(self, n) -> "Source":
        """The first n examples of every class, in index order."""
        n = pipeline.whole_number("n", n, 1)
        if self.classes is None:
            raise ValueError(f"{self.name} has no classes to take {n} examples of each. Use subset(rows).")
        values, counts = np.unique(self.classes, return_counts=True)
        if counts.min() < n:
            scarce = values[counts.argmin()]
            label = self.class_names[scarce] if self.class_names else scarce
            raise ValueError(
                f"first_per_class({n}): class {label} of {self.name} has only {counts.min()} examples. "
                f"Use at most {counts.min()}."
            )
        rows = np.concatenate([np.flatnonzero(self.classes == value)[:n] for value in values])
        return self.subset(np.sort(rows))

    def train_batches(self, batch_size, *, seed=0, first_batch=0) -> tf.data.Dataset:
        """Augmented batches; each iteration is one epoch, and the next one is the next epoch.

        The order is a function of (seed, epoch), the pixels of (seed, epoch, index). A short last batch is
        kept. first_batch: leaves out the batches before it, of every epoch: the rest of one that was cut.
        """
        augmentation = self._ready_augmentation()
        batch_size = pipeline.whole_number("batch_size", batch_size, 1)
        self.batch_sizes = (*(size for size in self.batch_sizes if size != batch_size), batch_size)
        return pipeline.random_batches(
            self._reader,
            MultiCrop(augmentation, *self._small_crops) if self._small_crops else augmentation,
            batch_size,
            seed=seed,
            stream=pipeline.TRAINING,
            epoch=self._begin_epoch,
            first_batch=first_batch,
        )

    def steps_per_epoch(self, batch_size) -> int:
        """Batches of an epoch, a short last one included."""
        return -(-self.num_examples // batch_size)

    def view_batches(self, batch_size, *, position, seed=0) -> tf.data.Dataset:
        """One augmented, shuffled pass: a function of (seed, position), and unlike any training epoch."""
        position = pipeline.whole_number("position", position, 0)
        return pipeline.random_batches(
            self._reader,
            self._ready_augmentation(),
            batch_size,
            seed=seed,
            stream=pipeline.VIEWS,
            epoch=lambda: position,
        )

    def plain_batches(self, batch_size) -> tf.data.Dataset:
        """All images in index order, augmentation off: resized, cropped at the centre and normalised only."""
        return pipeline.plain_batches(self._reader, self._ready_augmentation().plain, batch_size)

    def ten_crop_batches(self, batch_size) -> tf.data.Dataset:
        """All images in index order, ten crops of each: batches ([B, 10, h, w, c], index [B])."""
        return pipeline.plain_batches(self._reader, self._ready_augmentation().ten_crops, batch_size)

    def stored_images(self, rows):
        """The images of these rows before any augmentation: uint8 or float32 in [0, 1], [n,h,w,c], or a list of n
        images [h,w,c] where their sizes differ."""
        return self._reader.fetch(np.asarray(rows))

    def _begin_epoch(self) -> int:
        epoch = self._next_epoch
        self._next_epoch = epoch + 1
        return epoch

    def _ready_augmentation(self):
        if self._augmentation is None:
            raise ValueError(
                f"The images of {self.name} differ in size and cannot share a batch. Give them one size: "
                "source.augmented(policy, size=224), or from_folder(path, image_size=224) for a folder."
            )
        return self._augmentation

    def _with(self, reader, ids, classes, augmentation, small_crops=None):
        return Source(
            reader,
            name=self.name,
            ids=ids,
            classes=classes,
            class_names=self.class_names,
            augmentation=augmentation,
            small_crops=small_crops,
        )


def from_arrays(images, classes=None, *, ids=None, class_names=None, name="arrays") -> Source:
    """Images in RAM: uint8 [N,h,w,c] or [N,h,w], or float in [0, 1]; c is 1 or 3. Kept, not copied.

    classes int [N]; ids N distinct strings (default "0", "1", ...); class_names: names of class 0, 1, ...
    """
    images = _checked_images(images)
    n = len(images)
    ids = [str(i) for i in range(n)] if ids is None else list(ids)
    if len(ids) != n or not all(isinstance(one, str) for one in ids):
        raise ValueError(f"ids must be {n} strings, one per image, got {len(ids)} of {_types(ids)}.")
    if classes is not None:
        classes = _checked_classes(classes, n, class_names)
    elif class_names is not None:
        raise ValueError("class_names were given without classes. Give classes [N] as well, or neither.")
    names = None if class_names is None else list(class_names)
    return Source(ArrayReader(images), name=name, ids=ids, classes=lambda: classes, class_names=names)


def digits(size=16) -> Source:
    """scikit-learn's 1,797 handwritten digits, 8x8 scaled bilinearly to size x size, one channel."""
    size = pipeline.whole_number("size", size, 1)
    from sklearn.datasets import load_digits  # half a second, which other sources need not pay

    bunch = load_digits()
    with tf.device("CPU"):  # the same bits, and so the same fingerprint, on every machine
        images = tf.image.resize(bunch.images[..., None] / 16.0, (size, size)).numpy()  # 0..16 -> 0..1
    names = [str(name) for name in bunch.target_names]
    return from_arrays(images, bunch.target, class_names=names, name="digits")


def from_folder(path, *, image_size=None, without=()) -> Source:
    """Images in a folder: all directly in it, or in one sub-folder per class (sorted names: classes 0, 1...).

    Always three channels, since whether all files are grayscale shows only on decoding them all. Hidden files
    are passed over. image_size: (h, w), or one number for both, to which every image is stretched. Without it
    images keep their sizes; when these differ, `augmented(policy, size=...)` must bring them to one.
    without: ids of files to leave out, as if they were not there; see `inspection`.
    """
    folder = open_folder(path, without)
    sizes = set(by_threads(read_size, folder.paths))
    shape = (*(sizes.pop() if len(sizes) == 1 else (None, None)), 3)
    stamps = np.array(list(by_threads(stamp, folder.paths)), np.int64)
    names = list(folder.class_names)
    number = {name: index for index, name in enumerate(names)}
    classes = np.array([number[file.parent.name] for file in folder.paths], np.int64) if names else None
    return Source(
        FileReader([str(file) for file in folder.paths], stamps, shape, _height_and_width(image_size)),
        name=folder.root.name,
        ids=folder.ids,
        classes=lambda: classes,
        class_names=names or None,
    )


def from_tfds(name, split="train", data_dir=None, *, in_memory=None, without=()) -> Source:
    """A prepared TensorFlow Datasets set, e.g. from_tfds("cifar10", "train[:10%]"). Nothing is downloaded.

    in_memory: hold decoded images in RAM; None decides by size (up to 2 GiB). Otherwise records are read when
    needed, through an index of their offsets. Indices and fingerprint are the same either way.
    without: ids of examples to leave out, as if they were not there; see `inspection`.
    """
    from selabel_tf.data import tfds_records  # importing TFDS takes time that other sources need not pay

    reader, ids, class_names = tfds_records.open_prepared(name, split, data_dir)
    if without:
        left_out = set(without)
        rows = np.flatnonzero([one not in left_out for one in ids])
        reader, ids = reader.take(rows), [ids[row] for row in rows]
    uneven = None in reader.image_shape
    if in_memory and uneven:
        raise ValueError(f"in_memory=True needs images of one size, but those of {name!r} differ. Leave it out.")
    if in_memory is None:
        in_memory = not uneven and reader.num_examples * np.prod(reader.image_shape, dtype=np.int64) <= RAM_LIMIT

    def classes():
        found = None if reader.class_key is None else reader.classes()
        return None if found is None or found.min() < 0 else found  # TFDS writes -1 where a test set keeps them secret

    images = reader.in_memory() if in_memory else reader
    return Source(images, name=f"{name}/{split}", ids=ids, classes=classes, class_names=class_names)


def _height_and_width(image_size):
    if image_size is None:
        return None
    pair = tuple(image_size) if isinstance(image_size, tuple | list) else (image_size, image_size)
    if len(pair) != 2:
        raise ValueError(f"image_size must be one number or (height, width), got {image_size!r}.")
    return tuple(pipeline.whole_number("image_size", side, 1) for side in pair)


def _checked_images(images):
    """uint8 or float32 [N,h,w,c], or an error that says what is wrong with them."""
    images = np.asarray(images)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape:
        raise ValueError(
            f"images must have shape [N, h, w], [N, h, w, 1] or [N, h, w, 3] with N, h, w at least 1, "
            f"got {list(images.shape)}."
        )
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise TypeError(
            f"images must be uint8, or float in [0, 1], got {images.dtype}. "
            "Convert them, e.g. images.astype('uint8') if the values are 0..255."
        )
    images = images.astype(np.float32, copy=False)
    low, high = images.min(), images.max()  # NaN and infinity show in them, and no array of flags is needed
    if not np.isfinite(low) or not np.isfinite(high):
        row = next(i for i, image in enumerate(images) if not np.isfinite(image).all())
        raise ValueError(f"images hold NaN or infinity, first in row {row}. Mend or remove such rows.")
    if low < 0 or high > 1:
        raise ValueError(
            f"float images must lie in [0, 1], got {low:g}..{high:g}. Divide by 255 if they are 0..255; "
            "normalisation belongs into source.augmented(policy, mean=..., std=...)."
        )
    return images


def _checked_classes(classes, n, class_names):
    classes = np.asarray(classes)
    if classes.shape != (n,) or classes.dtype.kind not in "iu":
        raise ValueError(
            f"classes must be {n} whole numbers, one per image, got {classes.dtype} of shape {list(classes.shape)}."
        )
    if classes.min() < 0 or (class_names is not None and classes.max() >= len(class_names)):
        limit = "" if class_names is None else f" and below {len(class_names)}, the number of class_names"
        raise ValueError(f"classes must be at least 0{limit}, got {classes.min()}..{classes.max()}.")
    return classes.astype(np.int64)


def _types(values):
    return ", ".join(sorted({type(value).__name__ for value in values})) or "nothing"
