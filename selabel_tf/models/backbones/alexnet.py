"""AlexNet with BatchNorm, as DeepCluster and SeLa train it, in two widths.

                     conv1   pool   conv2   pool   conv3   conv4   conv5   pool   fc6    fc7
    kernel/stride    11/4    3/2    5/1     3/2    3/1     3/1     3/1     3/2
    map at 224       55      27     27      13     13      13      13      6      4096   4096
    channels         96             256            384     384     256
    small variant    64             192            384     256     256

Every convolution is followed by BatchNorm and ReLU (conv1_bn, conv1_relu, ...) and keeps its bias although
BatchNorm cancels it: the recipe's 58,284,096 parameters (small: 57,006,144) count it. Features: fc7 after
its ReLU, [B, 4096].
"""

import keras

from selabel_tf.models.backbones.layers import dense, image_input, normalized_convolution, relu

# Backwards from one pixel after the last pool: conv5 needs a map of 3, conv2 of 7, conv1 of 15,
# and (n + 2 * 2 - 11) // 4 + 1 reaches 15 at n = 63.
SMALLEST_SIDE = 63


def alexnet(image_shape, *, dropout: float = 0.5, synchronized: bool = False) -> keras.Model:
    """Images [B, h, w, c] -> features [B, 4096]. `dropout` acts before fc6 and before fc7."""
    return _alexnet("alexnet", (96, 256, 384, 384, 256), image_shape, dropout, synchronized)


def alexnet_small(image_shape, *, dropout: float = 0.5, synchronized: bool = False) -> keras.Model:
    """The narrow variant (64, 192, 384, 256, 256): images [B, h, w, c] -> features [B, 4096]."""
    return _alexnet("alexnet_small", (64, 192, 384, 256, 256), image_shape, dropout, synchronized)


def _alexnet(model_name, channels, image_shape, dropout, synchronized):
    geometry = {  # name: (kernel, stride, padding, max-pooled)
        "conv1": (11, 4, 2, True),
        "conv2": (5, 1, 2, True),
        "conv3": (3, 1, 1, False),
        "conv4": (3, 1, 1, False),
        "conv5": (3, 1, 1, True),
    }
    images = x = image_input(image_shape, smallest=SMALLEST_SIDE)
    for filters, (name, (kernel, strides, padding, pooled)) in zip(channels, geometry.items(), strict=True):
        x = normalized_convolution(
            x,
            filters,
            kernel,
            strides=strides,
            padding=padding,
            use_bias=True,
            name=name,
            synchronized=synchronized,
        )
        x = relu(x, name=f"{name}_relu")
        if pooled:
            x = keras.layers.MaxPooling2D(3, 2, name=f"{name}_pool")(x)
    x = keras.layers.Flatten(name="flatten")(x)
    for name in ("fc6", "fc7"):
        x = keras.layers.Dropout(dropout, name=f"{name}_dropout")(x)
        x = dense(x, 4096, name=name)
        x = relu(x, name=f"{name}_relu")
    return keras.Model(images, x, name=model_name)
