"""Layers as feature vectors: the paper's sizes, and maxima as NumPy finds them."""

import keras
import numpy as np
import pytest
from keras import layers

from selabel_tf.evaluation import pooled_layers
from selabel_tf.features import at_layers
from selabel_tf.models import backbone

RNG = np.random.default_rng(0)


def pooled_by_hand(maps, side, padding):
    """Maxima [B, h', w', c] over windows of `side` at that stride, the map surrounded by nothing."""
    maps = np.pad(maps, [(0, 0), (padding, padding), (padding, padding), (0, 0)], constant_values=-np.inf)
    height, width = (length // side for length in maps.shape[1:3])
    windows = maps[:, : height * side, : width * side].reshape(len(maps), height, side, width, side, -1)
    return windows.max(axis=(2, 4))


def test_alexnets_five_layers_have_the_papers_sizes_and_maxima():
    model = backbone("alexnet", (224, 224, 3))
    for layer in model.layers:  # as if trained: far from the statistics they start with
        if isinstance(layer, layers.BatchNormalization):
            layer.set_weights([RNG.uniform(0.3, 2.0, weight.shape) for weight in layer.get_weights()])
    pooled = pooled_layers.of_alexnet(model)
    assert [tap.num_features for tap in pooled.taps] == [9600, 9216, 9600, 9600, 9216]
    assert [tap.layer for tap in pooled.taps] == [f"conv{number}_relu" for number in range(1, 6)]
    assert not any(isinstance(layer, layers.BatchNormalization) for layer in pooled.trunk.layers)
    assert pooled.trunk.trainable_variables == []

    images = RNG.normal(size=(2, 224, 224, 3)).astype(np.float32)
    maps = at_layers(model, [tap.layer for tap in pooled.taps])(images, training=False)
    rules = [(6, 3), (4, 0), (3, 1), (3, 1), (2, 0)]
    expected = [pooled_by_hand(np.asarray(one), *rule).reshape(2, -1) for one, rule in zip(maps, rules, strict=True)]
    found = np.split(np.asarray(pooled.trunk(images)), np.cumsum([9600, 9216, 9600, 9600]), axis=1)
    for here, there in zip(found, expected, strict=True):
        assert np.abs(here - there).max() < 1e-4 * np.abs(there).max()


def test_the_papers_protocol_refuses_another_input_size():
    complaint = r"pools conv1_relu to 9600 features, but the 16x16x96 map of this alexnet gives 864\..* name the layers"
    with pytest.raises(ValueError, match=complaint):
        pooled_layers.of_alexnet(backbone("alexnet", (67, 67, 3)))


def test_the_papers_protocol_refuses_the_narrow_variant():
    inputs = x = keras.Input((55, 55, 64))
    for name in pooled_layers.ALEXNET:
        x = layers.Identity(name=name)(x)
    with pytest.raises(ValueError, match=r"the 55x55x64 map of this narrow gives 6400\."):
        pooled_layers.of_alexnet(keras.Model(inputs, x, name="narrow"))


def test_the_papers_protocol_names_the_layers_of_a_network_that_has_no_such_layers():
    with pytest.raises(ValueError, match=r"resnet18_cifar has no layer 'conv2_relu'.* Its layers: image, conv1"):
        pooled_layers.of_alexnet(backbone("resnet18_cifar", (17, 17, 3), width=3))


def test_any_layers_are_pooled_to_the_finest_grid_that_is_allowed():
    model = backbone("small_conv", (13, 11, 1))
    names = ["flatten", "conv1_relu", "conv2_relu"]  # [384], 13x11x32, 7x6x64
    pooled = pooled_layers.of_layers(model, names, max_features=1000)
    assert [tap.shape for tap in pooled.taps] == [(384,), (5, 5, 32), (3, 3, 64)]
    assert [tap.pooling for tap in pooled.taps] == ["as it is", "5x5 maxima of 13x11x32", "3x3 maxima of 7x6x64"]
    assert pooled.num_features == 384 + 800 + 576
    images = RNG.normal(size=(2, 13, 11, 1)).astype(np.float32)
    vectors, wide, deep = (np.asarray(one) for one in at_layers(model, names)(images, training=False))
    found = np.asarray(pooled.trunk(images))
    np.testing.assert_allclose(found[:, :384], vectors, rtol=1e-5)
    np.testing.assert_allclose(found[:, 384:1184].reshape(2, 5, 5, 32), adaptive_by_hand(wide, 5), rtol=1e-5)
    np.testing.assert_allclose(found[:, 1184:].reshape(2, 3, 3, 64), adaptive_by_hand(deep, 3), rtol=1e-5)


def adaptive_by_hand(maps, side):
    """Cell i of `side` covers floor(i h / side) to ceil((i + 1) h / side)."""
    height, width = maps.shape[1:3]

    def edges(length):
        return [(i * length // side, -(-(i + 1) * length // side)) for i in range(side)]

    rows = [[maps[:, a:b, c:d].max(axis=(1, 2)) for c, d in edges(width)] for a, b in edges(height)]
    return np.stack([np.stack(row, axis=1) for row in rows], axis=1)


def test_the_default_layer_is_the_averaged_map_of_a_resnet():
    model = backbone("resnet18_cifar", (17, 19, 3), width=3)
    assert pooled_layers.output_layer(model) == "pool"
    images = RNG.normal(size=(2, 17, 19, 3)).astype(np.float32)
    pooled = pooled_layers.of_layers(model, [pooled_layers.output_layer(model)])
    np.testing.assert_allclose(pooled.trunk(images), model(images, training=False), rtol=1e-5)


def test_the_network_itself_stays_trainable():
    model = backbone("small_conv", (13, 11, 1))
    pooled_layers.of_layers(model, ["flatten"])
    assert len(model.trainable_variables) == 15


def test_half_precision_networks_give_float32_features():
    inputs = keras.Input((5,))
    model = keras.Model(inputs, layers.Dense(3, dtype="mixed_float16", name="half")(inputs))
    assert pooled_layers.of_layers(model, ["half"]).trunk(np.ones((2, 5), np.float32)).dtype == "float32"


@pytest.mark.parametrize(
    "names, max_features, complaint",
    [
        (["conv1_relu", "conv1_relu"], 9600, "'conv1_relu' is named twice"),
        (["convolution"], 9600, r"no layer 'convolution'.* Its layers: .*conv1_relu"),
        (["conv2_relu"], 63, r"gives 7x6x64: even pooled to one pixel .* Allow at least 64"),
        (["flatten"], 383, r"gives 384: even pooled .* Allow at least 384"),
    ],
)
def test_layers_that_cannot_be_probed_are_refused(names, max_features, complaint):
    with pytest.raises(ValueError, match=complaint):
        pooled_layers.of_layers(backbone("small_conv", (13, 11, 1)), names, max_features=max_features)


def test_a_layer_that_is_neither_map_nor_vector_is_refused():
    inputs = keras.Input((5, 3))
    model = keras.Model(inputs, layers.Identity(name="rows")(inputs))
    with pytest.raises(ValueError, match=r"'rows' gives \(5, 3\)\. A probe takes vectors .* or maps"):
        pooled_layers.of_layers(model, ["rows"])
