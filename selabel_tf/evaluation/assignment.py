"""The clusters that a network's heads predict for a whole set of images, seen before or not.

    assigned[i, h] = argmax_k of the logits of head h for image i

The same as `model.assign` batch by batch, through the one inference loop.
"""

import numpy as np
import tensorflow as tf

from ..features import Extractor


def assign(model, batches, num_examples, on_batch=None) -> np.ndarray:
    """Predicted clusters [num_examples, H] int32 of a SelfLabelModel.

    Args:
        model: maps images to a list of H logits [B, K_h].
        batches: dataset of (image, index), each index of 0..num_examples-1 once.
        on_batch: called with the number of rows done so far, for progress bars.
    """

    def forward(images):
        logits = model(images, training=False)
        return tf.stack([tf.argmax(scores, axis=-1) for scores in logits], axis=1)  # [B, H]

    # Rows are kept in float32, in which whole numbers up to 2**24 are exact.
    return Extractor(forward, model.distribute_strategy)(batches, num_examples, on_batch).astype(np.int32)
