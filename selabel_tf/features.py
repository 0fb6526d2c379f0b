"""The only inference loop: a dataset of (image, index) batches -> one row per example, addressed by index."""

import difflib

import keras
import numpy as np
import tensorflow as tf

from .reader_errors import own_words


class Extractor:
    """Runs `forward` over whole datasets, on every replica of a strategy; compiled once, called often.

    Args:
        forward: images [B, h, w, c] -> rows [B, D].
        strategy: the tf.distribute strategy of the variables in `forward`; the current one by default.
    """

    def __init__(self, forward, strategy=None):
        self.strategy = strategy or tf.distribute.get_strategy()
        self._forward = forward
        self._compiled = None

    @own_words()
    def __call__(self, batches, num_examples, on_batch=None):
        """Rows [num_examples, D], float32, in index order.

        Args:
            batches: dataset of (image, index), each index of 0..num_examples-1 once, in any order.
            num_examples: N.
            on_batch: called with the number of rows done so far, for progress bars.
        """
        batches = self.strategy.experimental_distribute_dataset(batches)
        if self._compiled is None:  # for the dataset's own shapes: the short last batch costs no second trace
            function = tf.function(self._on_replicas, input_signature=batches.element_spec[:1])
            self._compiled = function.get_concrete_function()  # several extractors are not taken for retracing
        rows, seen, done = None, np.zeros(num_examples, bool), 0
        for images, index in batches:
            outputs = self._compiled(images)
            for output, where in zip(self._local(outputs), self._local(index), strict=True):
                output, where = output.numpy(), where.numpy()
                if rows is None:
                    rows = np.empty((num_examples, *output.shape[1:]), np.float32)
                _check_new(where, seen)
                rows[where] = output
                seen[where] = True
                done += len(where)
            if on_batch is not None:
                on_batch(done)
        if not seen.all():
            raise ValueError(
                f"The batches show {done} of {num_examples} examples; index {int(np.argmin(seen))} never came. "
                "Extraction needs every example once."
            )
        return rows

    def _on_replicas(self, images):
        return self.strategy.run(self._forward, (images,))

    def _local(self, value):
        return self.strategy.experimental_local_results(value)


def extract(forward, batches, num_examples, on_batch=None):
    """Extractor for a single use."""
    return Extractor(forward)(batches, num_examples, on_batch)


def at_layers(backbone, names) -> keras.Model:
    """The part of a functional `backbone` up to the layers `names`: images -> list of their outputs, in that order.

    (For a single name Keras gives the output itself: `.outputs` and keras.tree.flatten are lists in either case.) It
    shares the backbone's weights. An unknown name is refused with the list of the known ones.
    """
    layers = {layer.name: layer for layer in backbone.layers}
    for name in names:
        if name not in layers:
            close = difflib.get_close_matches(name, layers, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"{backbone.name} has no layer {name!r}.{hint} Its layers: {', '.join(layers)}.")
    return keras.Model(backbone.input, [layers[name].output for name in names], name=f"{backbone.name}_layers")


def _check_new(where, seen):
    if len(where) and (where.min() < 0 or where.max() >= len(seen)):
        raise ValueError(f"An index lies outside 0..{len(seen) - 1}: the batches are of another set of examples.")
    if seen[where].any() or len(np.unique(where)) != len(where):
        raise ValueError("An example came twice: extraction needs every example once.")
