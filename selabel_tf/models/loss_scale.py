"""Scaled losses on several replicas: a step on which any of them has overflowed is left out on all.

Keras' LossScaleOptimizer looks at the gradients of the first replica only, before they are summed: an overflow on
another one would go into the weights.
"""

import math

import keras
import tensorflow as tf


def with_overflow_of_all(gradients):
    """The gradients of this replica, made NaN where those of any replica have overflowed."""
    replica = tf.distribute.get_replica_context()
    if replica.num_replicas_in_sync == 1:
        return gradients
    finite = [tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients if gradient is not None]
    overflowed = replica.all_reduce("sum", tf.cast(~tf.reduce_all(finite), tf.float32)) > 0
    return [g if g is None else tf.where(overflowed, tf.cast(math.nan, g.dtype), g) for g in gradients]


@keras.saving.register_keras_serializable(package="selabel_tf")
class SharedLossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """LossScaleOptimizer for models that train by Keras' own step."""

    def apply(self, grads, trainable_variables=None):
        return super().apply(with_overflow_of_all(grads), trainable_variables)
