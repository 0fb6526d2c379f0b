"""A small convolutional net for digits: five 3x3 convolutions, each with BatchNorm and ReLU.

              conv1   conv2   conv3   conv4   conv5   flatten
    stride    1       2       1       2       1
    channels  32      64      64      64      32
    16x16     16      8       8       4       4       512

The last map is flattened, not averaged: in centred images such as digits the place of a stroke tells much.
"""

import keras

from selabel_tf.models.backbones.layers import image_input, normalized_convolution, relu


def small_conv(image_shape, *, synchronized: bool = False) -> keras.Model:
    """Images [B, h, w, c] -> features [B, 32 * ceil(h/4) * ceil(w/4)], i.e. [B, 512] at 16x16."""
    images = x = image_input(image_shape)
    for number, (filters, strides) in enumerate([(32, 1), (64, 2), (64, 1), (64, 2), (32, 1)], start=1):
        name = f"conv{number}"
        x = normalized_convolution(x, filters, 3, strides=strides, padding=1, name=name, synchronized=synchronized)
        x = relu(x, name=f"{name}_relu")
    x = keras.layers.Flatten(name="flatten")(x)
    return keras.Model(images, x, name="small_conv")
