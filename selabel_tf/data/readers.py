"""Where pixels live: in RAM, in image files, or in TFRecord files behind an offset index.

A reader is random access: `fetch(index)` returns the images of those rows, whatever order they are asked for.
So an order of indices decides what is read, and no shuffle buffer exists. All readers have

    num_examples, image_shape (h, w, c), h and w None where images differ in size
    fetch(index int64 [B]) -> uint8 or float32 [B,h,w,c], or a list of B arrays [h,w,c] where sizes differ
    take(rows) -> a reader of these rows only
    content() -> bytes that change when the images change (for fingerprints), cheap to get

Of encoded images the content is their stamps: int64 [N, 2], bytes of the image and a checksum of (some of) them.
Decoded pixels would not do: they may differ between machines.

Encoded images are decoded by threads of this module, not by a parallel `Dataset.map`: a graph cannot catch
a decoding error to add the file's name to it, and tf.data runs Python ops one at a time under op determinism.
TensorFlow's decoders release the interpreter lock, so threads do run side by side.
"""

import functools
import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from selabel_tf.data.image_header import FORMATS, BadImage, has_alpha, oddity, read_size

BLOCK = 1024  # calls that wait for a thread at once


@functools.cache
def threads() -> ThreadPoolExecutor:
    """The process's decoding threads, made at first use."""
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="decode")


def by_threads(function, values):
    """function(value) of each, in order, by all threads; in blocks, as a million waiting calls take gigabytes."""
    for start in range(0, len(values), BLOCK):
        yield from threads().map(function, values[start : start + BLOCK])


class ArrayReader:
    """Images [N,h,w,c] in RAM, uint8 or float32."""

    def __init__(self, images, stamps=None):
        self.images = images
        self.stamps = stamps  # [N, 2], where the pixels came from a decoder
        self.num_examples = len(images)
        self.image_shape = images.shape[1:]
        self.dtype = images.dtype

    def fetch(self, index):
        return self.images[index]

    def take(self, rows):
        return ArrayReader(self.images[rows], None if self.stamps is None else self.stamps[rows])

    def content(self):
        """A digest of the pixels, or the stamps of what they were decoded from."""
        if self.stamps is not None:
            return _bytes(self.stamps)
        little_endian = self.images.astype(self.images.dtype.newbyteorder("<"), copy=False)
        pixels = hashlib.sha256(np.ascontiguousarray(little_endian))
        return f"{self.images.dtype.name} {self.images.shape} {pixels.hexdigest()}".encode()


class EncodedReader:
    """Images decoded when asked for. A subclass says where row i lies: `place(i)` and `encoded(i)`."""

    dtype = np.dtype(np.uint8)

    def __init__(self, stamps, stored_shape):
        self.stamps = stamps  # [N, 2]
        self.num_examples = len(stamps)
        self.stored_shape = self.image_shape = stored_shape

    def fetch(self, index):
        try:
            images = list(threads().map(self.image, index))  # a failure is raised for the first row of `index`
        except BadImage as error:
            raise ValueError(str(error)) from None  # tf.data passes errors on as text: a plain name is found again
        return images if None in self.image_shape else np.stack(images)

    def image(self, i):
        """Row i decoded: uint8 [h,w,c]."""
        encoded = self.encoded(i)
        reason = oddity(encoded)
        if not reason:
            try:
                image = decode(encoded, self.stored_shape[2])
            except tf.errors.InvalidArgumentError as error:
                reason = re.sub(r"{{.*?}} *| *\[Op:.*", "", error.message.splitlines()[0])  # names of ops
        if reason:
            raise BadImage(
                self.place(i),
                f"cannot be decoded as an image ({FORMATS}): {reason}",
                "It is damaged, or of a kind TensorFlow does not read: convert it, replace it, or remove it.",
            )
        if any(want not in (None, got) for want, got in zip(self.stored_shape, image.shape, strict=True)):
            raise BadImage(
                self.place(i),
                f"decodes to shape {image.shape}, but {self.stored_shape} was announced",
                "The file is damaged or has changed since it was opened: open the set again.",
            )
        return image

    def problem(self, i) -> str:
        """What is wrong with the image of row i, "" where nothing is: it is decoded for that, and thrown away."""
        try:
            self._try(i)
        except BadImage as error:
            return error.reason
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        return ""

    def _try(self, i):
        self.image(i)

    def in_memory(self) -> ArrayReader:
        """All images decoded once, into one array; needs images of one size."""
        images = np.empty((self.num_examples, *self.image_shape), self.dtype)
        for start in range(0, self.num_examples, 1024):
            rows = np.arange(start, min(start + 1024, self.num_examples))
            try:
                block = _decode_all(tf.constant([self.encoded(i) for i in rows]), self.stored_shape[2])
            except tf.errors.InvalidArgumentError:
                block = list(threads().map(self.image, rows))  # slower, and names the culprit
            images[rows] = block
        return ArrayReader(images, self.stamps)

    def content(self):
        return _bytes(self.stamps)


class FileReader(EncodedReader):
    """One image per file. `resize_to` (h, w): every image is stretched to it after decoding."""

    def __init__(self, paths, stamps, stored_shape, resize_to=None):
        super().__init__(stamps, stored_shape)
        self.paths = paths
        self.resize_to = resize_to
        if resize_to is not None:
            self.image_shape = (*resize_to, stored_shape[2])

    def place(self, i):
        return self.paths[i]

    def encoded(self, i):
        with open(self.paths[i], "rb") as file:
            return file.read()

    def image(self, i):
        image = super().image(i)
        if self.resize_to is None:
            return image
        with tf.device("CPU:0"):
            resized = tf.image.resize(image, self.resize_to, antialias=True)
            return tf.saturate_cast(tf.round(resized), tf.uint8).numpy()

    def take(self, rows):
        paths = [self.paths[i] for i in rows]
        return FileReader(paths, self.stamps[rows], self.stored_shape, self.resize_to)

    def _try(self, i):
        read_size(self.paths[i])  # first: a bomb is not to be decoded
        self.image(i)


class RecordReader(EncodedReader):
    """Examples in TFRecord files, found by offset: the record of row i begins at `offsets[i]` of its file.

    files: paths; file_of int64 [N] row -> file; positions int64 [N] number of the record in its file.
    stamps int64 [N, 2]: length of the record, and its checksum as the file has it.
    image_key, class_key: names of the features in the tf.train.Example (class_key None: no classes).
    """

    def __init__(self, files, file_of, positions, offsets, stamps, stored_shape, image_key, class_key):
        super().__init__(stamps, stored_shape)
        self.files, self.file_of, self.positions, self.offsets = files, file_of, positions, offsets
        self.image_key, self.class_key = image_key, class_key

    def place(self, i):
        return f"Record {self.positions[i]} of {self.files[self.file_of[i]]}"

    def encoded(self, i):
        try:
            return self._features(i)[self.image_key].bytes_list.value[0]
        except (DecodeError, IndexError) as error:
            reason = f"is no example with an image in {self.image_key!r}"
            raise BadImage(self.place(i), reason, "The file is damaged: fetch it again.") from error

    def classes(self):
        """int64 [N]. Reads every record: seconds for small sets, as long as the disk takes for large ones."""
        values = (self._features(i)[self.class_key].int64_list.value[0] for i in range(self.num_examples))
        return np.fromiter(values, np.int64, self.num_examples)

    def numbers(self, i, key):
        """The whole numbers that row i holds under `key`, a list of any length."""
        return list(self._features(i)[key].int64_list.value)

    def take(self, rows):
        columns = (self.file_of[rows], self.positions[rows], self.offsets[rows], self.stamps[rows])
        return RecordReader(self.files, *columns, self.stored_shape, self.image_key, self.class_key)

    def _features(self, i):
        with open(self.files[self.file_of[i]], "rb", buffering=0) as file:
            record = os.pread(file.fileno(), int(self.stamps[i, 0]), int(self.offsets[i]))
        return tf.train.Example.FromString(record).features.feature


def index_records(path) -> tuple[np.ndarray, np.ndarray]:
    """(offsets [n], stamps [n, 2]), int64, of the payloads in a TFRecord file.

    A record is: uint64 length, uint32 checksum, payload, uint32 checksum of the payload. Only these numbers are read.
    """
    offsets, stamps = [], []
    with open(path, "rb", buffering=0) as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        head = os.pread(file.fileno(), 12, 0)
        while at < size:
            length = int.from_bytes(head[:8], "little")
            if at + 12 + length + 4 > size:
                raise ValueError(
                    f"{path} ends inside record {len(stamps)}: the copy is incomplete. Fetch the file again."
                )
            offsets.append(at + 12)
            at += 12 + length
            between = os.pread(file.fileno(), 16, at)  # the end of this record and the beginning of the next
            stamps.append((length, int.from_bytes(between[:4], "little")))
            at, head = at + 4, between[4:]
    return np.array(offsets, np.int64), np.array(stamps, np.int64).reshape(-1, 2)


def decode(encoded: bytes, channels: int) -> np.ndarray:
    """uint8 [h,w,channels]: of an animation the first frame, of 16 bits the upper 8, of transparency nothing.

    What a transparent pixel hides is shown (in a GIF, which hides nothing there, black); how a camera was held (EXIF)
    is not looked at.
    """
    stored = 4 if channels == 3 and has_alpha(encoded) else channels
    with tf.device("CPU:0"):
        return tf.io.decode_image(encoded, channels=stored, expand_animations=False).numpy()[..., :channels]


@tf.function(reduce_retracing=True)
def _decode_all(encoded, channels):
    """uint8 [B,h,w,channels] of B encoded images of one size: a third of the cost of B calls of `decode`."""
    return tf.map_fn(
        lambda one: tf.io.decode_image(one, channels=channels, expand_animations=False),
        encoded,
        fn_output_signature=tf.TensorSpec([None, None, channels], tf.uint8),
    )


def _bytes(stamps) -> bytes:
    return stamps.astype("<i8").tobytes()
