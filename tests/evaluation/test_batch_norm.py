"""BatchNorm absorbed: the same outputs, fewer layers."""

import keras
import numpy as np
import pytest
from keras import layers

from selabel_tf.evaluation import batch_norm
from selabel_tf.features import at_layers
from selabel_tf.models import backbone


def with_statistics(model, seed=0):
    """`model` as if trained: every BatchNorm with statistics, scale and offset far from 0 and 1."""
    rng = np.random.default_rng(seed)
    for layer in norms_of(model):
        layer.set_weights([rng.uniform(0.3, 2.0, weight.shape) for weight in layer.get_weights()])
    return model


def norms_of(model):
    return [layer for layer in model.layers if isinstance(layer, layers.BatchNormalization)]


def images_for(model, count=3):
    return np.random.default_rng(1).normal(size=(count, *model.input.shape[1:])).astype(np.float32)


def relative_difference(here, there):
    here, there = np.asarray(here), np.asarray(there)
    return np.abs(here - there).max() / np.abs(there).max()


@pytest.mark.parametrize(
    "name, image_shape, options",
    [
        ("alexnet", (67, 71, 3), {}),
        ("resnet18_cifar", (17, 19, 3), {"width": 7}),
        ("small_conv", (13, 11, 1), {}),
    ],
)
def test_outputs_stay_and_no_batch_norm_does(name, image_shape, options):
    model = with_statistics(backbone(name, image_shape, **options))
    absorbed = batch_norm.absorb(model)
    assert len(norms_of(model)) > 4
    assert norms_of(absorbed) == []
    images = images_for(model)
    expected = model(images, training=False)
    assert np.abs(np.asarray(expected)).max() > 1e-3  # something to compare
    assert relative_difference(absorbed(images, training=False), expected) < 1e-4


def test_every_relu_of_alexnet_shows_the_same_map():
    model = with_statistics(backbone("alexnet", (67, 71, 3)))
    names = [f"conv{number}_relu" for number in range(1, 6)]
    images = images_for(model)
    ours = at_layers(batch_norm.absorb(model), names)(images, training=False)
    theirs = at_layers(model, names)(images, training=False)
    for here, there in zip(ours, theirs, strict=True):
        assert relative_difference(here, there) < 1e-4


def test_a_batch_norm_before_a_convolution_or_after_a_sum_stays():
    model = with_statistics(backbone("resnet50v2", (32, 32, 3)))
    absorbed = batch_norm.absorb(model)
    # 16 blocks of three; the first BatchNorm of each reads a sum or a pool
    assert len(norms_of(model)) == 48
    assert {layer.name.split("_", 2)[2] for layer in norms_of(absorbed)} == {"conv1_bn"}
    assert len(norms_of(absorbed)) == 16
    images = images_for(model, 2)
    assert relative_difference(absorbed(images, training=False), model(images, training=False)) < 1e-4


def test_the_copy_has_its_own_weights_and_the_model_keeps_its_own():
    model = with_statistics(backbone("small_conv", (13, 11, 1)))
    before = [weight.copy() for weight in model.get_weights()]
    copy = batch_norm.absorb(model)
    for layer in copy.layers:
        layer.set_weights([np.zeros_like(weight) for weight in layer.get_weights()])
    for here, there in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(here, there)


def test_names_of_layers_stay():
    model = backbone("small_conv", (13, 11, 1))
    assert [layer.name for layer in batch_norm.absorb(model).layers] == [layer.name for layer in model.layers]


def test_a_dense_layer_absorbs_and_scale_and_offset_may_be_missing():
    inputs = keras.Input((5,))
    x = layers.BatchNormalization(center=False, scale=False)(layers.Dense(7)(inputs))
    x = layers.BatchNormalization(center=False)(layers.Dense(3, use_bias=False)(x))
    model = with_statistics(keras.Model(inputs, x))
    absorbed = batch_norm.absorb(model)
    assert norms_of(absorbed) == []
    assert relative_difference(absorbed(images_for(model)), model(images_for(model))) < 1e-5


def unabsorbable():
    """name -> a model whose BatchNorm has to stay."""
    inputs = keras.Input((7, 5, 3))
    convolution = layers.Conv2D(3, 3, padding="same")
    x = convolution(inputs)
    yield "read twice", keras.Model(inputs, layers.Add()([x, layers.BatchNormalization()(x)]))
    yield "an output", keras.Model(inputs, [x, layers.BatchNormalization()(x)])
    yield "called twice", keras.Model(inputs, layers.BatchNormalization()(convolution(x)))
    activated = layers.Conv2D(2, 3, activation="relu")(inputs)
    yield "with an activation", keras.Model(inputs, layers.BatchNormalization()(activated))
    yield "another axis", keras.Model(inputs, layers.BatchNormalization(axis=1)(layers.Conv2D(2, 3)(inputs)))
    transposed = layers.Conv2DTranspose(2, 3)(inputs)
    yield "transposed", keras.Model(inputs, layers.BatchNormalization()(transposed))


@pytest.mark.parametrize("case", range(6))
def test_what_would_change_the_outputs_is_not_absorbed(case):
    name, model = list(unabsorbable())[case]
    absorbed = batch_norm.absorb(with_statistics(model))
    assert len(norms_of(absorbed)) == 1, name
    images = images_for(model)
    for here, there in zip(_listed(absorbed(images)), _listed(model(images)), strict=True):
        np.testing.assert_array_equal(here, there, err_msg=name)


def test_a_model_without_a_graph_is_refused():
    with pytest.raises(ValueError, match="is a Sequential, not a functional model"):
        batch_norm.absorb(keras.Sequential([keras.Input((5,)), layers.Dense(3), layers.BatchNormalization()]))


def _listed(outputs):
    return outputs if isinstance(outputs, list) else [outputs]
