"""One look of a network at images: features, the clusters of all heads, and how sure it is of them.

    z = backbone(image)  [D],     p_h = softmax(head_h(z))  [K_h],     confidence_h = p_h[cluster_h]

`cluster_h` is given, or the head's own prediction. Everything in one pass, for the pass is what takes time.
"""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from ..features import Extractor


@dataclass(frozen=True)
class Look:
    """features [n, D], clusters int32 [n, H], confidence [n, H]."""

    features: np.ndarray
    clusters: np.ndarray
    confidence: np.ndarray


def look(model, batches, num_examples, labels=None, on_batch=None) -> Look:
    """At a dataset of (image, index), each index of 0..num_examples-1 once. labels: [num_examples, H], or None."""
    heads = len(model.num_clusters)
    if labels is not None:
        with tf.device("CPU:0"):
            table = tf.constant(labels, tf.int32)  # captured by the map, not written into its graph
        batches = batches.map(lambda images, index: ((images, tf.gather(table, index)), index))

    def forward(given):
        images, clusters = (given, None) if labels is None else given
        features = model.backbone(images, training=False)
        logits = [tf.cast(scores, tf.float32) for scores in model.heads(model.projection(features))]
        if clusters is None:
            clusters = tf.stack([tf.argmax(scores, axis=1, output_type=tf.int32) for scores in logits], axis=1)
        sure = [tf.gather(tf.nn.softmax(scores), clusters[:, head], batch_dims=1) for head, scores in enumerate(logits)]
        # Rows are float32, in which whole numbers up to 2**24 are exact.
        return tf.concat([tf.cast(features, tf.float32), tf.cast(clusters, tf.float32), tf.stack(sure, axis=1)], axis=1)

    rows = Extractor(forward, model.distribute_strategy)(batches, num_examples, on_batch)
    features, clusters, confidence = np.split(rows, [rows.shape[1] - 2 * heads, rows.shape[1] - heads], axis=1)
    return Look(features, clusters.astype(np.int32), confidence)
