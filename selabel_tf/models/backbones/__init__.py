"""Backbones by name: functional Keras models, image [B, h, w, c] -> features [B, D], all layers named.

A backbone of your own needs nothing from here: any `keras.Model` that maps images to vectors will do.
"""

import difflib
import inspect

import keras

from selabel_tf.models.backbones.alexnet import alexnet, alexnet_small
from selabel_tf.models.backbones.resnet import resnet18, resnet18_cifar, resnet34, resnet50
from selabel_tf.models.backbones.resnet_v2 import resnet50v2
from selabel_tf.models.backbones.small_conv import small_conv

BACKBONES = {
    builder.__name__: builder
    for builder in (
        alexnet,
        alexnet_small,
        resnet18,
        resnet34,
        resnet50,
        resnet50v2,
        resnet18_cifar,
        small_conv,
    )
}


def backbone(name: str, image_shape, **options) -> keras.Model:
    """Build the backbone `name` for images of `image_shape` (h, w, c), c being 1 or 3.

    options:
        synchronized (all): True takes BatchNorm's moments over all replicas, so that replicas agree.
        width (resnet18_cifar): channels of the first stage, 64 unless told.
        dropout (alexnet, alexnet_small): the rate before fc6 and before fc7, 0.5 unless told.
    """
    if name not in BACKBONES:
        raise ValueError(
            f"Unknown backbone {name!r}.{_did_you_mean(name, BACKBONES)} Available: {', '.join(sorted(BACKBONES))}."
        )
    known = list(inspect.signature(BACKBONES[name]).parameters)[1:]  # the first is image_shape
    for option in options:
        if option not in known:
            raise ValueError(
                f"Backbone {name!r} has no option {option!r}.{_did_you_mean(option, known)} "
                f"Its options: {', '.join(known)}."
            )
    return BACKBONES[name](image_shape, **options)


def _did_you_mean(word, known):
    close = difflib.get_close_matches(str(word), known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
