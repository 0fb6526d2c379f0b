"""What may stand between features and heads while training: a small network that is left behind afterwards.

    z [B, D] -> dense, BatchNorm, ReLU, ... dense -> [B, P],  of length 1 / temperature where one is given

The labels then shape the projection most, and the features under it stay more general (Chen et al., 2020). With rows of
fixed length the heads compare directions, and `temperature` says how sharply.
"""

from numbers import Integral

import keras
from keras import layers, ops

from .backbones.layers import FusedBatchNormalization


@keras.saving.register_keras_serializable(package="selabel_tf")
class Projection(keras.layers.Layer):
    """Features [B, D] -> [B, sizes[-1]].

    Args:
        sizes: of the dense layers, e.g. (256, 128); BatchNorm and ReLU follow each but the last. () adds none.
        temperature: rows are brought to length 1 / temperature, e.g. 0.1; None leaves their length alone.
        synchronized: True takes BatchNorm's moments over all replicas, so that replicas agree.
    """

    def __init__(self, sizes=(), temperature=None, synchronized=False, **kwargs):
        super().__init__(**kwargs)
        if any(not isinstance(size, Integral) or size < 1 for size in sizes):
            raise ValueError(f"sizes={sizes!r}: expected whole numbers of at least 1, e.g. (256, 128).")
        self.sizes, self.temperature, self.synchronized = tuple(map(int, sizes)), temperature, synchronized
        if temperature is not None and not temperature > 0:
            raise ValueError(f"temperature={temperature}: expected a positive number, e.g. 0.1, or None for none.")
        self.steps = []
        for number, size in enumerate(self.sizes):
            last = number == len(self.sizes) - 1
            initializer = keras.initializers.VarianceScaling(2.0, "fan_in", "untruncated_normal")
            own = {"dtype": self.dtype_policy}  # not the process's, which may be another when a file is loaded
            dense = layers.Dense(size, use_bias=last, kernel_initializer=initializer, name=f"dense{number}", **own)
            self.steps.append(dense)
            if not last:
                own |= {"momentum": 0.9, "epsilon": 1e-5, "synchronized": synchronized}
                self.steps += [FusedBatchNormalization(name=f"bn{number}", **own), layers.ReLU(dtype=self.dtype_policy)]

    def build(self, input_shape):
        for step in self.steps:
            step.build(input_shape)
            input_shape = step.compute_output_shape(input_shape)
            if not self.trainable:  # Keras hands it on when it is set, and not from a config
                step.trainable = False

    def call(self, z, training=False):
        for step in self.steps:
            z = step(z, training=training) if isinstance(step, layers.BatchNormalization) else step(z)
        if self.temperature is not None:
            # In float32 at least: in float16 squares of rows longer than 256 overflow, and 1 / epsilon, the slope at
            # a row of zeros, always does.
            wide = ops.cast(z, keras.backend.result_type(z.dtype, "float32"))
            epsilon = 1e-3 if wide.dtype != z.dtype else None
            z = ops.cast(ops.normalize(wide, axis=-1, epsilon=epsilon) / self.temperature, z.dtype)
        return z

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.sizes[-1]) if self.sizes else input_shape

    def get_config(self):
        own = {"sizes": list(self.sizes), "temperature": self.temperature, "synchronized": self.synchronized}
        return {**super().get_config(), **own}
