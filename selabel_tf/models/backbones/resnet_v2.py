"""ResNet-50 v2 (pre-activation) in the variant the authors of SeLa trained: 23,496,256 parameters.

    a        = relu(bn(x))
    block(x) = shortcut + conv3(relu(bn(conv2(relu(bn(conv1(a)))))))
    shortcut = x, or conv(a) where the shape changes: 1x1, without BatchNorm

It differs from the published v2 and from `keras.applications.ResNet50V2`: neither BatchNorm nor ReLU follows
the 7x7 stem, and none comes before the final average. Maps and stages are those of ResNet-50 v1.
"""

import keras

from selabel_tf.models.backbones.layers import batch_norm, convolution, image_input, relu


def resnet50v2(image_shape, *, synchronized: bool = False) -> keras.Model:
    """Images [B, h, w, c] -> features [B, 2048]."""
    images = image_input(image_shape)
    x = convolution(images, 64, 7, strides=2, padding=3, name="conv1")
    # Without a ReLU the map has negative values: zeros around it would win at the border, where PyTorch pads
    # the pool with -inf. Keras' "same" leaves the outside out of the maximum too, but at stride 2 it is
    # lopsided; at stride 1 it is even. So pool at stride 1, then take every second pixel.
    x = keras.layers.MaxPooling2D(3, 1, padding="same", name="conv1_pool")(x)
    x = keras.layers.MaxPooling2D(1, 2, name="conv1_pool_stride")(x)
    for stage, depth in enumerate((3, 4, 6, 3)):
        for block in range(depth):
            x = _block(
                x,
                64 * 2**stage,
                strides=2 if stage > 0 and block == 0 else 1,
                widens=block == 0,
                name=f"stage{stage + 1}_block{block + 1}",
                synchronized=synchronized,
            )
    x = keras.layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(images, x, name="resnet50v2")


def _block(x, filters, *, strides, widens, name, synchronized):
    def activate(x, part):
        x = batch_norm(x, name=f"{name}_{part}_bn", synchronized=synchronized)
        return relu(x, name=f"{name}_{part}_relu")

    y = activate(x, "conv1")
    shortcut = convolution(y, 4 * filters, 1, strides=strides, name=f"{name}_shortcut") if widens else x
    y = convolution(y, filters, 1, name=f"{name}_conv1")
    y = convolution(activate(y, "conv2"), filters, 3, strides=strides, padding=1, name=f"{name}_conv2")
    y = convolution(activate(y, "conv3"), 4 * filters, 1, name=f"{name}_conv3")
    return keras.layers.Add(name=f"{name}_add")([shortcut, y])
