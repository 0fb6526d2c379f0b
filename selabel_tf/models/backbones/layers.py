"""The pieces every backbone is made of, with the constants of the PyTorch recipes written once.

    convolution   weights ~ N(0, 2 / (k * k * out)), i.e. Kaiming normal over the fan-out; biases 0
    dense         weights ~ N(0, 0.01^2); biases 0
    BatchNorm     momentum 0.9, epsilon 1e-5 (PyTorch's 0.1 and 1e-5); gamma 1, beta 0
    padding       the same number of zeros on every side, as PyTorch pads

Each function takes a symbolic tensor and a layer name, adds Keras layers, and returns the next tensor. Every
layer gets an initializer of its own: Keras' are functions of their seed, so a shared one repeats itself.
"""

import keras
import tensorflow as tf
from keras import layers, ops

ONEDNN_BLOCK = 16  # channels that it works on together, at the most


def image_input(image_shape, *, smallest: int = 1):
    """`image_shape` (h, w, c) -> symbolic images [B, h, w, c]; refuses what no backbone can take.

    `smallest`: the shortest side for which every map of the architecture keeps at least one pixel.
    """
    shape = tuple(image_shape) if isinstance(image_shape, (tuple, list)) else ()
    if len(shape) != 3 or not all(isinstance(side, int) and side > 0 for side in shape):
        raise ValueError(
            f"image_shape={image_shape!r} is not (height, width, channels) in positive whole numbers. "
            "Pass the shape of one image, e.g. (32, 32, 3)."
        )
    height, width, channels = shape
    if channels not in (1, 3):
        raise ValueError(
            f"image_shape={shape} has {channels} channels; expected 1 (gray) or 3 (colour), channels last. "
            "Convert the images, or build your own keras.Model for them."
        )
    if min(height, width) < smallest:
        raise ValueError(
            f"image_shape={shape} is too small for this backbone: its last map would be empty. "
            f"The smallest side it takes is {smallest}; enlarge the images or choose another backbone."
        )
    return keras.Input(shape, name="image")


def convolution(x, filters: int, kernel_size: int, *, name: str, strides=1, padding=0, use_bias=False):
    """[B, h, w, c] -> [B, h', w', filters], h' = (h + 2 padding - kernel_size) // strides + 1, w' alike."""
    # At stride 1 "same" pads an odd kernel evenly: equal to ZeroPadding2D, without its copy. At larger
    # strides Keras pads only what the last window lacks, far side first, and the map shifts.
    same = strides == 1 and 2 * padding == kernel_size - 1
    if padding and not same:
        x = layers.ZeroPadding2D(padding, name=f"{name}_pad")(x)
    if kernel_size == 1 and strides > 1 and x.shape[-1] < ONEDNN_BLOCK:
        # oneDNN's filter gradient of a strided 1x1 convolution of few channels writes past its memory (oneDNN issue
        # 6035: wrong numbers, or the process dies). Leaving pixels out first computes the same.
        x = layers.MaxPooling2D(1, strides, name=f"{name}_stride")(x)
        strides = 1
    return layers.Conv2D(
        filters,
        kernel_size,
        strides=strides,
        padding="same" if same else "valid",
        use_bias=use_bias,
        kernel_initializer=keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal"),
        name=name,
    )(x)


def batch_norm(x, *, name: str, synchronized: bool):
    """BatchNorm over the last axis. `synchronized`: batch moments over all replicas, not each its own."""
    return FusedBatchNormalization(momentum=0.9, epsilon=1e-5, synchronized=synchronized, name=name)(x)


def normalized_convolution(x, filters: int, kernel_size: int, *, name: str, synchronized: bool, **options):
    """A convolution `name` and its BatchNorm `name`_bn; `options` are those of `convolution`."""
    x = convolution(x, filters, kernel_size, name=name, **options)
    return batch_norm(x, name=f"{name}_bn", synchronized=synchronized)


def dense(x, units: int, *, name: str):
    """[B, d] -> [B, units]."""
    initializer = keras.initializers.RandomNormal(stddev=0.01)
    return layers.Dense(units, kernel_initializer=initializer, name=name)(x)


def relu(x, *, name: str):
    """max(x, 0), any shape."""
    return layers.ReLU(name=name)(x)


@keras.saving.register_keras_serializable(package="selabel_tf")
class FusedBatchNormalization(layers.BatchNormalization):
    """`keras.layers.BatchNormalization` whose training pass over [B, h, w, c] is one fused operation.

    Same arguments, weights, outputs, gradients and moving statistics as the stock layer, which reads the map
    once for each of mean, variance, scaling and their gradients. On two CPU cores a training step of
    resnet18_cifar at width 16 takes about 16% less time. Inference, and what the operation does not cover
    (moments over replicas, masks, renorm, other ranks, axes and types), run the stock code.

    Moving statistics are means over replicas, also where each replica normalises by its own moments. In the stock
    layer each replica has its own, and a file gets those of the first.
    """

    def add_weight(self, *args, trainable=True, **options):
        if not trainable:
            options["aggregation"] = "mean"
        return super().add_weight(*args, trainable=trainable, **options)

    def call(self, inputs, training=None, mask=None):
        if not (training and self.trainable and mask is None and self._is_covered(inputs)):
            return super().call(inputs, training=training, mask=mask)
        outputs, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=ops.convert_to_tensor(self.gamma),
            offset=ops.convert_to_tensor(self.beta),
            mean=tf.zeros([0]),  # unread in training
            variance=tf.zeros([0]),
            epsilon=self.epsilon,
            is_training=True,
        )
        # The operation reports sum (x - mean)^2 / (n - 1), n = B * h * w. Keras averages sum / n into
        # moving_variance, and so do we; PyTorch averages sum / (n - 1). On the smallest map of
        # resnet18_cifar at batch 128 the two differ by 0.05%.
        count = tf.cast(tf.size(inputs) // tf.shape(inputs)[-1], variance.dtype)
        variance *= (count - 1.0) / count
        self.moving_mean.assign(self.moving_mean * self.momentum + mean * (1.0 - self.momentum))
        self.moving_variance.assign(self.moving_variance * self.momentum + variance * (1.0 - self.momentum))
        return outputs

    def _is_covered(self, inputs):
        return (
            not self.synchronized
            and not self.renorm
            and self.center
            and self.scale
            and len(inputs.shape) == 4
            and self.axis in (-1, 3)
            and self.variable_dtype == "float32"
            and keras.backend.standardize_dtype(inputs.dtype) in ("float32", "float16")
        )
