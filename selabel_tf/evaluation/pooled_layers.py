"""Layers of a network as feature vectors: every map max-pooled to a size that a linear classifier can carry.

    images [B, h, w, c] -> map of layer l [B, h_l, w_l, c_l] -> pooled [B, p_l, q_l, c_l] -> its row of features

One frozen model gives the features of all layers side by side, [B, D_1 + D_2 + ...]: one pass over the images
serves all probes. It works on a copy: the network it is made of stays trainable.
"""

import math
from dataclasses import dataclass

import keras
from keras import layers

from ..features import at_layers
from . import batch_norm

# The paper's five: layer -> side and stride of the pool, zeros around the map, features that must come out. After a
# ReLU zeros around a map never win a maximum that a value of the map could.
ALEXNET = {
    "conv1_relu": (6, 3, 9600),  # 55x55x96 -> 10x10x96
    "conv2_relu": (4, 0, 9216),  # 27x27x256 -> 6x6x256
    "conv3_relu": (3, 1, 9600),  # 13x13x384 -> 5x5x384
    "conv4_relu": (3, 1, 9600),
    "conv5_relu": (2, 0, 9216),  # 13x13x256 -> 6x6x256
}


@dataclass(frozen=True)
class Tap:
    """One layer. shape: of its features, (h, w, c) of the pooled map or (D,); pooling: how they arise, in words."""

    layer: str
    shape: tuple[int, ...]
    pooling: str

    @property
    def num_features(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class PooledLayers:
    """trunk: images [B, h, w, c] -> float32 [B, num_features], the taps' features one after the other; frozen."""

    trunk: keras.Model
    taps: tuple[Tap, ...]

    @property
    def num_features(self) -> int:
        return sum(tap.num_features for tap in self.taps)


def of_alexnet(backbone) -> PooledLayers:
    """The paper's protocol: conv1 to conv5 after their ReLU, BatchNorm absorbed, pooled as in ALEXNET."""
    for (layer, (side, padding, expected)), tensor in zip(ALEXNET.items(), _maps(backbone, ALEXNET), strict=True):
        height, width, channels = tensor.shape[1:]
        found = ((height + 2 * padding) // side) * ((width + 2 * padding) // side) * channels
        if found != expected:
            raise ValueError(
                f"The paper's protocol pools {layer} to {expected} features, but the {_by(tensor.shape[1:])} map of "
                f"this {backbone.name} gives {found}. It is for alexnet on images 224x224; name the layers instead: "
                f"{','.join(ALEXNET)}."
            )
    absorbed = batch_norm.absorb(backbone)
    pooled = []
    for (layer, (side, padding, _)), tensor in zip(ALEXNET.items(), _maps(absorbed, ALEXNET), strict=True):
        words = f"{side}x{side} maxima of {_by(tensor.shape[1:])}"
        if padding:
            tensor = layers.ZeroPadding2D(padding, name=f"probe_{layer}_pad")(tensor)
        pooled.append((layer, layers.MaxPooling2D(side, side, name=f"probe_{layer}_pool")(tensor), words))
    return _joined(absorbed, pooled)


def of_layers(backbone, names, *, max_features=9600) -> PooledLayers:
    """Any named layers: vectors as they are, maps max-pooled to the finest square grid of at most `max_features`."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"The layer {name!r} is named twice. Name each layer once.")
    copy = keras.models.clone_model(backbone)
    copy.set_weights(backbone.get_weights())
    pooled = [_pooled(name, tensor, max_features) for name, tensor in zip(names, _maps(copy, names), strict=True)]
    return _joined(copy, pooled)


def output_layer(backbone) -> str:
    """The name of the layer that gives the backbone's own features: the averaged map of a ResNet, fc7 of AlexNet."""
    return backbone.output_names[0]


def _pooled(name, tensor, max_features):
    shape = tensor.shape[1:]
    if len(shape) not in (1, 3) or None in shape:
        raise ValueError(
            f"The layer {name!r} gives {shape}. A probe takes vectors (D,) or maps (h, w, c) of known size."
        )
    channels = shape[-1]
    if channels > max_features:
        raise ValueError(
            f"The layer {name!r} gives {_by(shape)}: even pooled to one pixel that is more than max_features="
            f"{max_features}. Allow at least {channels}."
        )
    if math.prod(shape) <= max_features:
        return name, tensor, "as it is"
    side = math.isqrt(max_features // channels)
    grid = (min(shape[0], side), min(shape[1], side))
    tensor = layers.AdaptiveMaxPooling2D(grid, name=f"probe_{name}_pool")(tensor)
    return name, tensor, f"{_by(grid)} maxima of {_by(shape)}"


def _maps(backbone, names):
    """The symbolic outputs of the layers `names`; an unknown name is refused with the list of the known ones."""
    return at_layers(backbone, list(names)).outputs


def _joined(backbone, pooled):
    """pooled: (layer, tensor, words) of each tap, the tensors made from the input of `backbone`."""
    taps = tuple(Tap(layer, tuple(tensor.shape[1:]), words) for layer, tensor, words in pooled)
    # float32 whatever the network computes in
    vectors = [layers.Flatten(name=f"probe_{layer}_flat", dtype="float32")(tensor) for layer, tensor, _ in pooled]
    joined = layers.Concatenate(name="probe_features", dtype="float32")(vectors) if len(vectors) > 1 else vectors[0]
    trunk = keras.Model(backbone.input, joined, name="frozen_trunk")
    trunk.trainable = False
    return PooledLayers(trunk, taps)


def _by(shape):
    return "x".join(map(str, shape))
