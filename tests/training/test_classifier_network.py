"""A backbone with a classifier: which layers train, and what those that do not train compute."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.models import backbone
from selabel_tf.training import CoupledSGD
from selabel_tf.training.classifier_network import blocks, with_classifier

SHAPE, C = (16, 16, 1), 3
IMAGES = np.random.default_rng(0).random((11, *SHAPE)).astype(np.float32)
CLASSES = np.arange(11) % C


@pytest.fixture(scope="module")
def trunk():
    """A network whose BatchNorm statistics are those of no batch here."""
    keras.utils.set_random_seed(0)
    made = backbone("small_conv", SHAPE)
    for layer in made.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_mean.assign_add(0.1 * tf.ones_like(layer.moving_mean))
    return made


@pytest.mark.parametrize(
    "name, shape, first, last, count",
    [
        ("small_conv", SHAPE, "conv1", "conv5", 5),
        ("resnet18_cifar", (8, 8, 3), "conv1", "stage4_block2", 9),
        ("resnet50v2", (32, 32, 3), "conv1", "stage4_block3", 17),
        ("alexnet", (224, 224, 3), "conv1", "fc7", 7),
    ],
)
def test_blocks_of_the_backbones(name, shape, first, last, count, monkeypatch):
    if name == "alexnet":  # its 58 million random numbers take a second and are not looked at
        monkeypatch.setattr(keras.initializers, "RandomNormal", lambda **_: keras.initializers.Zeros())
    found = blocks(backbone(name, shape))
    assert (found[0], found[-1], len(found)) == (first, last, count)


def trained_blocks(model):
    return {layer.name.split("_")[0] for layer in model.layers if layer.trainable_weights}


@pytest.mark.parametrize(
    "layers, expected",
    [
        ("all", {"conv1", "conv2", "conv3", "conv4", "conv5", "classifier"}),
        ("2", {"conv4", "conv5", "classifier"}),
        ("5", {"conv1", "conv2", "conv3", "conv4", "conv5", "classifier"}),
        ("conv4", {"conv4", "conv5", "classifier"}),
        ("classifier", {"classifier"}),
    ],
)
def test_what_trains_begins_where_layers_say(trunk, layers, expected):
    assert trained_blocks(with_classifier(trunk, C, layers=layers)) == expected


def test_fc6_of_alexnet_is_the_papers_fc6_to_8(monkeypatch):
    monkeypatch.setattr(keras.initializers, "RandomNormal", lambda **_: keras.initializers.Zeros())
    model = with_classifier(backbone("alexnet_small", (63, 63, 3)), 20, layers="fc6")
    assert trained_blocks(model) == {"fc6", "fc7", "classifier"}
    assert model.get_layer("fc6_dropout").rate == 0.5  # behind the frozen part
    frozen = with_classifier(backbone("alexnet_small", (63, 63, 3)), 20, layers="classifier")
    assert frozen.get_layer("fc6_dropout").rate == frozen.get_layer("fc7_dropout").rate == 0


def step(model):
    """One step of training; {name of layer: whether any of its variables, statistics included, has moved}."""
    model.compile(CoupledSGD(0.1, l2=1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = {layer.name: layer.get_weights() for layer in model.layers if layer.weights}
    model.train_on_batch(IMAGES, CLASSES)
    return {
        name: any((new != old).any() for new, old in zip(model.get_layer(name).get_weights(), weights, strict=True))
        for name, weights in before.items()
    }


def test_a_step_moves_what_trains_and_nothing_else_not_even_statistics(trunk):
    moved = step(with_classifier(trunk, C, layers="conv4"))
    assert moved == {name: name.startswith(("conv4", "conv5", "classifier")) for name in moved}
    assert len(moved) == 11


def test_frozen_blocks_compute_in_training_what_they_compute_in_inference(trunk):
    model = with_classifier(trunk, C, layers="classifier")
    np.testing.assert_array_equal(model(IMAGES, training=True), model(IMAGES, training=False))
    whole = with_classifier(trunk, C, layers="all")
    assert np.abs(whole(IMAGES, training=True) - whole(IMAGES, training=False)).max() > 1e-3


def test_batch_norm_in_inference_trains_the_convolutions_alone(trunk):
    moved = step(with_classifier(trunk, C, batch_norm="inference"))
    assert moved == {name: not name.endswith("_bn") for name in moved}


def test_the_network_starts_as_the_backbone_with_a_small_classifier_of_its_seed(trunk):
    model = with_classifier(trunk, C, seed=5)
    classifier = model.get_layer("classifier")
    kernel = classifier.kernel.numpy()
    expected = trunk(IMAGES, training=False).numpy() @ kernel
    np.testing.assert_allclose(model(IMAGES, training=False), expected, atol=1e-6)
    assert kernel.std() == pytest.approx(0.01, rel=0.1) and not classifier.bias.numpy().any()
    np.testing.assert_array_equal(kernel, with_classifier(trunk, C, seed=5).get_layer("classifier").kernel)
    assert (kernel != with_classifier(trunk, C, seed=6).get_layer("classifier").kernel.numpy()).any()
    step(model)
    assert all(layer.trainable for layer in trunk.layers)  # a copy: the run's own network stays as it is
    np.testing.assert_allclose(trunk(IMAGES, training=False).numpy() @ kernel, expected)


def test_mixed_precision_stays_and_scores_are_float32():
    usual = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        half = backbone("small_conv", SHAPE)
    finally:
        keras.config.set_dtype_policy(usual)
    model = with_classifier(half, C)
    assert keras.config.dtype_policy() == usual
    assert model.get_layer("conv1").compute_dtype == "float16"
    assert model(IMAGES).dtype == tf.float32
    assert model.dtype_policy.name == "mixed_float16"  # so that compile scales the loss


@pytest.mark.parametrize(
    "options, words",
    [
        ({"layers": "conv9"}, "small_conv has no block 'conv9'. Did you mean 'conv"),
        ({"layers": "conv1_bn"}, "or the block to begin with: conv1, conv2, conv3, conv4, conv5"),
        ({"layers": "6"}, r"layers=6: small_conv has 5 blocks \(conv1, .*\). Give 1 to 5"),
        ({"layers": "0"}, "layers=0: .* or classifier for none of them"),
        ({"batch_norm": "off"}, "batch_norm='off' is unknown. Use training or inference"),
    ],
)
def test_mistakes_are_explained(trunk, options, words):
    with pytest.raises(ValueError, match=words):
        with_classifier(trunk, C, **options)
