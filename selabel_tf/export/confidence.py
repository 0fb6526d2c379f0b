"""How sure the heads are of the labels: for every image and head

    p = softmax(logits)                                   [K], of the image without augmentation
    probability = p[cluster]
    runner_up = argmax over k != cluster of logits[k]     runner_up_probability = p[runner_up]

`of_labels` asks it of labels that are given, `predict` of the heads' own prediction, cluster = argmax of logits.
All of it is found while a batch is on the device: N x H x 4 numbers come back, never N x K.
"""

import numpy as np
import tensorflow as tf

from ..features import Extractor
from .labels import Confidence

GRAY_WEIGHTS = (0.299, 0.587, 0.114)


def of_labels(model, batches, labels, on_batch=None) -> Confidence:
    """Confidence in `labels` [N, H]. batches: (image, index), every index once; on_batch: called with the rows done."""
    _check_clusters(model)
    with tf.device("CPU:0"):
        table = tf.constant(labels, tf.int32)  # a tensor that the map captures, not a constant written into its graph
    pairs = batches.map(lambda images, index: ((images, tf.gather(table, index)), index))

    def forward(pair):
        images, clusters = pair
        return _ranked(model(images, training=False), tf.unstack(clusters, axis=1))

    return _read(Extractor(forward, model.distribute_strategy)(pairs, len(labels), on_batch))[1]


def predict(model, batches, num_examples, on_batch=None) -> tuple[np.ndarray, Confidence]:
    """(clusters int32 [N, H], confidence) as the heads see it. Colour images are made gray for a gray network."""
    _check_clusters(model)

    def forward(images):
        if model.image_shape[-1] == 1 and images.shape[-1] == 3:  # normalised alike in all channels, so here is as good
            images = tf.tensordot(images, tf.constant(GRAY_WEIGHTS, shape=[3, 1]), 1)
        logits = model(images, training=False)
        return _ranked(logits, [tf.argmax(scores, axis=-1, output_type=tf.int32) for scores in logits])

    return _read(Extractor(forward, model.distribute_strategy)(batches, num_examples, on_batch))


def _ranked(logits, clusters):
    """H x logits [B, K_h], H x clusters [B] -> [B, H, 4]; a float32 holds cluster numbers up to 2^24 exactly."""
    heads = []
    for scores, cluster in zip(logits, clusters, strict=True):
        scores = tf.cast(scores, tf.float32)
        p = tf.nn.softmax(scores)
        own = tf.one_hot(cluster, scores.shape[-1], on_value=True, off_value=False)
        other = tf.argmax(tf.where(own, -np.inf, scores), axis=-1, output_type=tf.int32)
        numbers = (cluster, tf.gather(p, cluster, batch_dims=1), other, tf.gather(p, other, batch_dims=1))
        heads.append(tf.stack([tf.cast(number, tf.float32) for number in numbers], axis=-1))  # [B, 4]
    return tf.stack(heads, axis=1)


def _read(rows):
    """[N, H, 4] -> (clusters, Confidence)."""
    cluster, probability, runner_up, runner_up_probability = np.moveaxis(rows, -1, 0)
    confidence = Confidence(probability, runner_up.astype(np.int32), runner_up_probability)
    return cluster.astype(np.int32), confidence


def _check_clusters(model):
    if min(model.num_clusters) < 2:
        raise ValueError(
            f"num_clusters={tuple(model.num_clusters)}: a head with a single cluster has no runner-up, and nothing to "
            "be sure of. Label with heads of at least 2 clusters."
        )
