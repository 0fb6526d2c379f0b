"""The linear heads: features z [B, D] -> logits, one [B, K_h] per head, by one matrix product for all of them."""

from itertools import accumulate
from numbers import Integral

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="selabel_tf")
class MultiHead(keras.layers.Layer):
    """H linear classifiers on the same features, side by side in one kernel [D, K_1 + ... + K_H].

    Args:
        num_clusters: K_h for every head h; they may differ.
    """

    def __init__(self, num_clusters, **kwargs):
        super().__init__(**kwargs)
        self.num_clusters = checked_num_clusters(num_clusters)
        self.ends = tuple(accumulate(self.num_clusters))

    def build(self, input_shape):
        total = self.ends[-1]
        self.kernel = self.add_weight(
            name="kernel",
            shape=(input_shape[-1], total),
            initializer=keras.initializers.RandomNormal(stddev=0.01),
        )
        self.bias = self.add_weight(name="bias", shape=(total,), initializer="zeros")

    def call(self, z):
        """Logits of every head: H tensors [B, K_h] for features z [B, D]."""
        return tf.split(z @ self.kernel + self.bias, self.num_clusters, axis=-1)

    def span(self, head):
        """The columns of head `head` among all K_1 + ... + K_H."""
        return slice(self.ends[head] - self.num_clusters[head], self.ends[head])

    def log_probabilities(self, z, head):
        """log softmax of one head, [n, K_head] in float32 whatever the precision of training."""
        span = self.span(head)
        kernel = tf.cast(self.kernel[:, span], tf.float32)
        bias = tf.cast(self.bias[span], tf.float32)
        return tf.nn.log_softmax(tf.cast(z, tf.float32) @ kernel + bias)

    def compute_output_shape(self, input_shape):
        return [(*input_shape[:-1], k) for k in self.num_clusters]

    def get_config(self):
        return {**super().get_config(), "num_clusters": list(self.num_clusters)}


def checked_num_clusters(num_clusters):
    """The cluster counts as a tuple of ints, or a ValueError that says what is wrong with them."""
    counts = (num_clusters,) if isinstance(num_clusters, Integral) else tuple(num_clusters)
    whole = all(isinstance(k, Integral) and not isinstance(k, bool) for k in counts)
    if not counts or not whole or min(counts) < 1:
        raise ValueError(
            f"num_clusters={num_clusters!r}: expected one whole number of at least 1 per head. "
            "For ten heads of 128 clusters give [128] * 10."
        )
    return tuple(map(int, counts))
