"""The labels nobody gave: one row per training example, one column per head, kept as weights of the model.

As non-trainable weights they are seen by the compiled training step after `assign`, are mirrored over replicas
and travel with every way of saving the model. int64 inside, because TensorFlow has no int32 resource gather on
GPUs; int32 outside.
"""

import keras
import numpy as np
import tensorflow as tf


@keras.saving.register_keras_serializable(package="selabel_tf")
class LabelStore(keras.layers.Layer):
    """Labels [N, H], and the log-scalings that the last label pass ended with (to start the next one from).

    Labels start random and balanced: i mod K, permuted, independently per head. With `spread` above 1 there are soft
    labels as well: that many clusters of each example and head, with shares that sum to 1; all on one at the start.
    """

    def __init__(self, num_examples, num_clusters, seed=0, spread=1, **kwargs):
        super().__init__(**{**kwargs, "trainable": False})
        self.num_examples = num_examples
        self.num_clusters = tuple(num_clusters)
        self.seed = seed
        self.spread = spread
        if not 1 <= spread <= min(self.num_clusters):
            raise ValueError(
                f"spread={spread}: a label can be spread over 1 cluster (hard labels) to {min(self.num_clusters)}, the "
                "number of clusters of the smallest head."
            )
        self.build(None)

    def build(self, _input_shape):
        """Makes the weights; they depend on no input."""
        self.values = self.add_weight(
            name="labels",
            shape=(self.num_examples, len(self.num_clusters)),
            dtype="int64",
            initializer=lambda shape, dtype: tf.constant(self._first_labels(), dtype),
            trainable=False,
        )
        self.log_scalings = self.add_weight(
            name="log_alpha",
            shape=(sum(self.num_clusters),),
            dtype="float64",
            initializer="zeros",
            trainable=False,
            autocast=False,
        )
        if self.spread > 1:
            shape = (*self.values.shape, self.spread)
            first = tf.one_hot(tf.zeros(self.values.shape, tf.int32), self.spread)
            self.clusters = self.add_weight(
                name="soft_clusters",
                shape=shape,
                dtype="int64",
                initializer=lambda shape, dtype: tf.constant(np.repeat(self._first_labels()[..., None], shape[-1], 2)),
                trainable=False,
            )
            self.shares = self.add_weight(
                name="soft_shares",
                shape=shape,
                dtype="float32",
                initializer=lambda shape, dtype: first,
                trainable=False,
                autocast=False,
            )
        self.built = True

    def _first_labels(self):
        columns = []
        for head, k in enumerate(self.num_clusters):
            generator = np.random.Generator(np.random.Philox(key=[self.seed, head]))
            columns.append(generator.permutation(np.arange(self.num_examples) % k))
        return np.stack(columns, axis=1)

    def lookup(self, index):
        """Labels [B, H] of the examples `index` [B]."""
        return tf.gather(self.values, self._inside(index))

    def lookup_soft(self, index):
        """Clusters and shares [B, H, spread] of the examples `index` [B]."""
        index = self._inside(index)
        return tf.gather(self.clusters, index), tf.gather(self.shares, index)

    def _inside(self, index):
        inside = tf.reduce_all((index >= 0) & (index < self.num_examples))
        message = (
            f"The labels are those of {self.num_examples} training examples and an index lies outside of them: "
            "these images are not of the training set. Use model.predict or model.assign for new images."
        )
        # the gather must wait for the check, else whichever of the two fails first is what the user reads
        with tf.control_dependencies([tf.debugging.Assert(inside, [message, tf.shape(index)])]):
            return tf.identity(index)

    def labels(self):
        """All labels, NumPy int32 [N, H]."""
        return self.values.numpy().astype(np.int32)

    def assign_head(self, head, labels, log_alpha, soft=None):
        """Puts one head's labels [N] and log-scalings [K_head] in place of its old ones.

        soft: its clusters and shares [N, spread], where labels are spread.
        """
        values = self.values.numpy()
        values[:, head] = labels
        self.values.assign(values)
        scalings = self.log_scalings.numpy()
        scalings[self._span(head)] = log_alpha
        self.log_scalings.assign(scalings)
        if soft is not None:
            for variable, column in zip((self.clusters, self.shares), soft, strict=True):
                whole = variable.numpy()
                whole[:, head] = column
                variable.assign(whole)

    def log_alpha(self, head):
        """One head's log-scalings, NumPy float64 [K_head]; zeros before its first label pass."""
        return self.log_scalings.numpy()[self._span(head)]

    def _span(self, head):
        start = sum(self.num_clusters[:head])
        return slice(start, start + self.num_clusters[head])

    def get_config(self):
        config = {"num_examples": self.num_examples, "num_clusters": list(self.num_clusters), "seed": self.seed}
        return {**super().get_config(), **config, "spread": self.spread}
