"""ResNet v1: after each residual sum a ReLU, BatchNorm after every convolution, shortcuts included.

    block(x) = relu(shortcut(x) + branch(x))
    branch     basic: 3x3, 3x3; bottleneck: 1x1, 3x3, 1x1 to 4 times the channels; stride on the first 3x3
    shortcut   x itself, or a 1x1 convolution + BatchNorm where the shape changes
    stages     channels w, 2w, 4w, 8w; the first block of stages 2 to 4 halves the map

The ImageNet stem (7x7 stride 2, max-pool) makes maps 112, 56, 28, 14, 7 of a 224 image; the CIFAR stem (3x3)
keeps the image's size. Everything is padded, so no image is too small. Features: the last map's average.
"""

import keras

from selabel_tf.models.backbones.layers import image_input, normalized_convolution, relu


def resnet18(image_shape, *, synchronized: bool = False) -> keras.Model:
    """Images [B, h, w, c] -> features [B, 512]; 11,176,512 parameters."""
    return _resnet("resnet18", image_shape, _large_stem, _basic, (2, 2, 2, 2), 64, synchronized)


def resnet34(image_shape, *, synchronized: bool = False) -> keras.Model:
    """Images [B, h, w, c] -> features [B, 512]; 21,284,672 parameters."""
    return _resnet("resnet34", image_shape, _large_stem, _basic, (3, 4, 6, 3), 64, synchronized)


def resnet50(image_shape, *, synchronized: bool = False) -> keras.Model:
    """Images [B, h, w, c] -> features [B, 2048]; 23,508,032 parameters."""
    return _resnet("resnet50", image_shape, _large_stem, _bottleneck, (3, 4, 6, 3), 64, synchronized)


def resnet18_cifar(image_shape, *, width: int = 64, synchronized: bool = False) -> keras.Model:
    """ResNet-18 for small images: [B, h, w, c] -> features [B, 8 * width]. `width` 16 suits a CPU."""
    if not isinstance(width, int) or width < 1:
        raise ValueError(f"width={width!r}; expected a whole number of channels, 1 or more, e.g. 16 or 64.")
    return _resnet("resnet18_cifar", image_shape, _small_stem, _basic, (2, 2, 2, 2), width, synchronized)


def _resnet(name, image_shape, stem, branch, depths, width, synchronized):
    images = image_input(image_shape)
    x = stem(images, width, synchronized)
    for stage, depth in enumerate(depths):
        for block in range(depth):
            strides = 2 if stage > 0 and block == 0 else 1
            place = f"stage{stage + 1}_block{block + 1}"
            x = _block(x, branch, width * 2**stage, strides=strides, name=place, synchronized=synchronized)
    x = keras.layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(images, x, name=name)


def _large_stem(x, width, synchronized):
    x = normalized_convolution(x, width, 7, strides=2, padding=3, name="conv1", synchronized=synchronized)
    x = relu(x, name="conv1_relu")
    # PyTorch pads a max-pool with -inf; after a ReLU zeros do the same.
    x = keras.layers.ZeroPadding2D(1, name="conv1_pool_pad")(x)
    return keras.layers.MaxPooling2D(3, 2, name="conv1_pool")(x)


def _small_stem(x, width, synchronized):
    x = normalized_convolution(x, width, 3, padding=1, name="conv1", synchronized=synchronized)
    return relu(x, name="conv1_relu")


def _block(x, branch, filters, *, strides, name, synchronized):
    y = branch(x, filters, strides=strides, name=name, synchronized=synchronized)
    if strides == 1 and x.shape[-1] == y.shape[-1]:
        shortcut = x
    else:
        shortcut = normalized_convolution(
            x, y.shape[-1], 1, strides=strides, name=f"{name}_shortcut", synchronized=synchronized
        )
    y = keras.layers.Add(name=f"{name}_add")([shortcut, y])
    return relu(y, name=f"{name}_relu")


def _basic(x, filters, *, strides, name, synchronized):
    x = normalized_convolution(
        x, filters, 3, strides=strides, padding=1, name=f"{name}_conv1", synchronized=synchronized
    )
    x = relu(x, name=f"{name}_conv1_relu")
    return normalized_convolution(x, filters, 3, padding=1, name=f"{name}_conv2", synchronized=synchronized)


def _bottleneck(x, filters, *, strides, name, synchronized):
    x = normalized_convolution(x, filters, 1, name=f"{name}_conv1", synchronized=synchronized)
    x = relu(x, name=f"{name}_conv1_relu")
    x = normalized_convolution(
        x, filters, 3, strides=strides, padding=1, name=f"{name}_conv2", synchronized=synchronized
    )
    x = relu(x, name=f"{name}_conv2_relu")
    return normalized_convolution(x, 4 * filters, 1, name=f"{name}_conv3", synchronized=synchronized)
