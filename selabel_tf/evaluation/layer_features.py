"""The features of several layers in one pass over the images: one row per image, the layers side by side.

    conv5 [h, w, c], fc7 [d]  ->  row [c + d]  or  [h * w * c + d]

Maps are averaged over their pixels, or flattened.
"""

import math

import keras

from ..features import at_layers

POOLS = ("average", "flat")


class LayerFeatures:
    """Call it with images [B, h, w, c] for rows [B, sum of sizes], float32; `split` tells the layers apart again.

    Args:
        backbone: a functional Keras model; it runs in inference mode.
        names: its layers, in the order wanted; one that is named twice counts once.
        pool: of POOLS, what becomes of maps [h, w, c].
    """

    def __init__(self, backbone, names, pool="average"):
        if pool not in POOLS:
            raise ValueError(f"Unknown pool {pool!r}. Available: {', '.join(POOLS)}.")
        names = list(dict.fromkeys(names))
        self._network, self._pool = at_layers(backbone, names), pool
        shapes = [output.shape[1:] for output in self._network.outputs]
        self.sizes = {
            name: shape[-1] if self._is_averaged(shape) else math.prod(shape)
            for name, shape in zip(names, shapes, strict=True)
        }

    def __call__(self, images):
        outputs = keras.tree.flatten(self._network(images, training=False))  # Keras gives a single one bare
        return keras.ops.concatenate([self._row(keras.ops.cast(output, "float32")) for output in outputs], axis=1)

    def split(self, rows):
        """Layer name -> its columns of `rows` [N, sum of sizes], without a copy."""
        parts, start = {}, 0
        for name, size in self.sizes.items():
            parts[name] = rows[:, start : start + size]
            start += size
        return parts

    def _is_averaged(self, shape):
        return self._pool == "average" and len(shape) == 3

    def _row(self, output):
        if self._is_averaged(output.shape[1:]):
            return keras.ops.mean(output, axis=(1, 2))
        return keras.ops.reshape(output, (keras.ops.shape(output)[0], -1))
