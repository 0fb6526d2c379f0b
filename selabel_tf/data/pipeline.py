"""From rows of a reader to batches, with random numbers that are a function and not a state.

    order = argsort of u,  u = N words of Philox(key=(seed, stream), counter=(epoch, ORDER, 0))
    factors[i] = numbers i*F .. i*F+F-1 of Philox(key=(seed, stream), counter=(epoch, FACTORS, 0))

Philox is counter-based: its words are a pure function of key and counter. So the order of an epoch depends on
(seed, stream, epoch, N) alone and the factors of image i on (seed, stream, epoch, i) alone: neither on N, nor
on the order, nor on the batch. Any epoch can be replayed, and a step number is a complete position. Raw words
are used because NumPy promises never to change them; `Generator.permutation` has no such promise.

A batch is `(images float32 [B,h,w,c], index int64 [B])`; under `multi_crop` a pair stands for the images.
"""

import math
import operator
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..untuned import untuned

TRAINING, VIEWS = 0, 1  # streams: label passes never show what training shows
ORDER, FACTORS = 0, 1
PREFETCHED = 4  # finished batches that may wait for the network
PIECE_BYTES = 2**27  # of decoded images that are cropped together; some six times as much is in memory


def _words(count, seed, stream, epoch, purpose):
    """uint64 [count]. Purpose and epoch sit in the high words of the counter, which `count` never reaches."""
    return np.random.Philox(key=[seed, stream], counter=[0, 0, purpose, epoch]).random_raw(count)


def order(num_examples, *, seed, stream, epoch) -> np.ndarray:
    """A permutation of 0..N-1, int64 [N]."""
    return np.argsort(_words(num_examples, seed, stream, epoch, ORDER), kind="stable")


def factors(num_examples, num_factors, *, seed, stream, epoch) -> np.ndarray:
    """Uniform numbers in [0, 1), float32 [N, F]: row i belongs to image i."""
    count = num_examples * num_factors
    halves = _words((count + 1) // 2, seed, stream, epoch, FACTORS).astype("<u8", copy=False).view("<u4")
    uniform = (halves[:count] >> 8).astype(np.float32) * np.float32(2.0**-24)  # 24 bits: all that float32 holds
    return uniform.reshape(num_examples, num_factors)


def random_batches(reader, augmentation, batch_size, *, seed, stream, epoch: Callable[[], int], first_batch=0):
    """Augmented batches in random order, from `first_batch` on. `epoch()` is asked anew by every iteration."""
    seed = whole_number("seed", seed, 0)

    def plan():
        key = {"seed": seed, "stream": stream, "epoch": epoch()}
        table = factors(reader.num_examples, augmentation.num_factors, **key)
        return order(reader.num_examples, **key), table

    return _batches(
        reader, batch_size, plan, augmentation.num_factors, augmentation.crop, augmentation.finish, first_batch
    )


def plain_batches(reader, show, batch_size):
    """Batches in index order, without randomness. show: images [B, h, w, c] -> what a batch holds of them."""

    def plan():
        return np.arange(reader.num_examples), np.empty((reader.num_examples, 0), np.float32)

    return _batches(
        reader,
        batch_size,
        plan,
        0,
        lambda images, _: show(images),
        lambda images, _: images,
    )


def _batches(reader, batch_size, plan, num_factors, crop, finish, first_batch=0) -> tf.data.Dataset:
    """Batches of `plan() -> (order [N], factors [N,F])`, asked anew by every iteration."""
    batch_size = whole_number("batch_size", batch_size, 1)
    first_batch = whole_number("first_batch", first_batch, 0)
    num_batches = -(-reader.num_examples // batch_size)
    if first_batch >= num_batches:
        raise ValueError(f"first_batch={first_batch}, but the batches are 0 to {num_batches - 1}.")
    channels = reader.image_shape[2]
    uneven = None in reader.image_shape
    dtype = tf.as_dtype(reader.dtype)
    # A batch of photographs may be gigabytes before the crop: then it is read and cropped in pieces.
    at_once = not uneven and batch_size * math.prod(reader.image_shape) * dtype.size <= PIECE_BYTES
    pixels = (
        (tf.TensorSpec([None], dtype), tf.TensorSpec([None, 2], tf.int64))
        if uneven
        else tf.TensorSpec([None, *reader.image_shape], dtype)
    )
    signature = (pixels, tf.TensorSpec([None, num_factors], tf.float32), tf.TensorSpec([None], tf.int64))

    def rows():
        sequence, table = plan()
        start, count = first_batch * batch_size, batch_size if at_once else min(batch_size, os.cpu_count())
        while start < reader.num_examples:
            index = sequence[start : start + count]
            images = reader.fetch(index)
            yield _pack(images) if uneven else images, table[index], index
            start += count
            if not at_once:
                mean = max(1, sum(image.nbytes for image in images) // len(images))
                count = min(batch_size, max(os.cpu_count(), PIECE_BYTES // mean))

    @tf.autograph.experimental.do_not_convert  # plain tracing takes half the time
    def cropped(images, table, index):
        return _crop_each(*images, channels, table, crop) if uneven else crop(images, table), table, index

    @tf.autograph.experimental.do_not_convert
    def finished(crops, table, index):
        return finish(crops, table), index

    options = tf.data.Options()
    options.deterministic = True
    # Several workers: each takes its share of the batches. There are no files that could be shared out.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = tf.data.Dataset.from_generator(rows, output_signature=signature).prefetch(1)
    if at_once:
        dataset = dataset.map(lambda *batch: finished(*cropped(*batch)), num_parallel_calls=tf.data.AUTOTUNE)
    else:  # pieces are large before the crop, so few are worked on at once
        dataset = dataset.map(cropped, num_parallel_calls=2).rebatch(batch_size)
        dataset = dataset.map(finished, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = (
        dataset.apply(tf.data.experimental.assert_cardinality(num_batches - first_batch))
        .prefetch(PREFETCHED)
        .with_options(options)
    )
    return untuned(dataset)


def _pack(images):
    """Images of differing sizes as one tensor: all values in a row, and (height, width) int64 [B, 2]."""
    return np.concatenate([image.ravel() for image in images]), np.array([image.shape[:2] for image in images])


def _crop_each(values, sizes, channels, table, crop):
    """Crop packed images one by one to one size: float32 [B,size,size,c]."""
    counts = tf.reduce_prod(sizes, axis=1) * channels
    starts = tf.cumsum(counts, exclusive=True)

    def one(row):
        size, start, count, numbers = row
        image = tf.reshape(values[start : start + count], (1, size[0], size[1], channels))
        return tf.nest.map_structure(lambda crops: crops[0], crop(image, numbers[None]))

    empty = crop(tf.zeros((1, 1, 1, channels), values.dtype), table[:1])  # for its structure: never computed
    types = tf.nest.map_structure(lambda crops: crops.dtype, empty)
    return tf.map_fn(one, (sizes, starts, counts, table), fn_output_signature=types)


def whole_number(name, value, least) -> int:
    """`value` as an int of at least `least` (and below 2^63), or an error that names it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}.") from None
    if not least <= number < 2**63:
        raise ValueError(f"{name} must be at least {least} (and below 2^63), got {number}.")
    return number
