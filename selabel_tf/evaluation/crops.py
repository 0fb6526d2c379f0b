"""Several crops of one image, one answer: the classifier's scores averaged over the crops.

    score_ic = 1/V sum_v f(crop v of image i)_c

The scores are the logits, before any softmax, as in the authors' code; the paper says "prediction scores".
"""

import keras
import tensorflow as tf


def averaged(forward):
    """forward: images [n, h, w, c] -> {name: scores [n, C]}. Returns the same for crops [B, V, h, w, c] -> [B, C]."""

    def over_crops(crops):
        shape = tf.shape(crops)
        images = tf.reshape(crops, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))
        images = tf.ensure_shape(images, [None, *crops.shape[2:]])

        def mean(scores):
            return tf.reduce_mean(tf.reshape(scores, [shape[0], shape[1], scores.shape[-1]]), axis=1)

        return keras.tree.map_structure(mean, forward(images))

    return over_crops
