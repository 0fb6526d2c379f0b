"""Thumbnails: which images are shown, and how they are packed into sheets.

One pool of images serves all heads: an image stands in a cluster of each. The pool is drawn so that every cluster of
every head has a few, whatever their number, and beyond that at random, so that what is shown of a cluster is a random
sample of it and not a choice of the best.

A sheet is a JPEG of up to 32 x 32 tiles. Tiles are whole JPEG blocks, and colour is kept at full resolution (browsers
smooth coarser colour over the edges of blocks), so that no tile colours its neighbours.
"""

import math

import numpy as np
import tensorflow as tf

ACROSS = 32  # tiles in a row, and rows in a sheet
BLOCK = 16
LARGEST = 48
CHUNK = 512  # rows looked at together
QUALITY = 82


def choose(labels, *, most, needed=(), each=12, seed=0) -> np.ndarray:
    """At most `most` rows of `labels` [N, H] in random order, those `needed` first among them.

    Every cluster of every head gets one row before any gets a second, and so on up to `each`, while there is room.
    """
    labels = np.asarray(labels)
    order = np.random.default_rng(seed).permutation(len(labels))
    if len(labels) <= most:
        return order
    chosen = np.zeros(len(labels), bool)
    chosen[np.asarray(needed, np.int64)] = True
    counts = [np.bincount(column[chosen], minlength=column.max() + 1) for column in labels.T]
    for wanted in range(1, each + 1):
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            rows = rows[~chosen[rows]]
            lacking = np.zeros(len(rows), bool)
            for column, count in zip(labels.T, counts, strict=True):
                # one per cluster and chunk: the first row of each cluster that still lacks one
                first = np.zeros(len(rows), bool)
                first[np.unique(column[rows], return_index=True)[1]] = True
                lacking |= first & (count[column[rows]] < wanted)
            rows = rows[lacking][: max(0, most - chosen.sum())]
            chosen[rows] = True
            for column, count in zip(labels.T, counts, strict=True):
                np.add.at(count, column[rows], 1)
    spare = order[~chosen[order]][: max(0, most - chosen.sum())]
    chosen[spare] = True
    return order[chosen[order]]


def tile_size(height, width) -> int:
    """The side of the tile for images of that size: 16, 32 or 48 pixels."""
    return BLOCK * min(LARGEST // BLOCK, max(1, math.ceil(min(height, width) / BLOCK - 0.25)))


def tiles(images, size) -> np.ndarray:
    """Images [n, h, w, c], values 0..1 (or uint8), as uint8 [n, size, size, c]."""
    images = np.asarray(images)
    if images.dtype == np.uint8:
        images = images / np.float32(255)
    small = tf.image.resize(images, (size, size), antialias=True).numpy()
    return np.rint(255 * np.clip(small, 0, 1)).astype(np.uint8)


def sheet_pixels(cells) -> np.ndarray:
    """Tiles uint8 [n, s, s, c], n <= 1024, row by row on one sheet [H, W, c]; unused places are black."""
    count, size, _, channels = cells.shape
    across = min(ACROSS, count)
    down = math.ceil(count / across)
    full = np.zeros((down * across, size, size, channels), np.uint8)
    full[:count] = cells
    return full.reshape(down, across, size, size, channels).swapaxes(1, 2).reshape(down * size, across * size, channels)


def sheets(cells) -> list[bytes]:
    """Tiles uint8 [n, s, s, c] as JPEG files of 1024 each, the last one shorter."""
    step = ACROSS * ACROSS
    parts = [cells[start : start + step] for start in range(0, len(cells), step)]
    return [tf.io.encode_jpeg(sheet_pixels(part), quality=QUALITY, chroma_downsampling=False).numpy() for part in parts]
