"""backbone.keras: plain Keras loads it, in safe mode and without this package."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from selabel_tf.export import keras_file
from selabel_tf.export.stock_layers import rebuilt

LOAD = """
import sys
import keras, numpy as np
network = keras.models.load_model(sys.argv[1], safe_mode=True)
np.save(sys.argv[3], network(np.load(sys.argv[2]), training=False))
assert not [name for name in sys.modules if name.startswith("selabel_tf")]
"""


def test_plain_keras_loads_it_in_a_process_without_this_package(networks, images_for, tmp_path):
    model = networks["resnet18_cifar"]
    keras_file.save(model.backbone, tmp_path / "backbone.keras")
    np.save(tmp_path / "images.npy", images_for(model))
    places = [str(tmp_path / name) for name in ("backbone.keras", "images.npy", "features.npy")]
    subprocess.run([sys.executable, "-c", LOAD, *places], cwd=tmp_path, check=True, timeout=300, capture_output=True)
    expected = model.embed(images_for(model))
    np.testing.assert_allclose(np.load(places[2]), expected, atol=1e-6 * np.abs(expected).max())


def test_stock_layers_compute_the_same_bits(network, images_for):
    copy = rebuilt(network.backbone)
    images = images_for(network)
    np.testing.assert_array_equal(copy(images, training=False), network.embed(images))
    assert {type(layer).__module__.partition(".")[0] for layer in copy.layers} == {"keras"}
    assert [layer.name for layer in copy.layers] == [layer.name for layer in network.backbone.layers]
    assert copy.get_layer("conv1_bn").momentum == network.backbone.get_layer("conv1_bn").momentum == 0.9


def test_the_copy_has_weights_of_its_own(networks, images_for):
    model = networks["small_conv"]
    before = model.embed(images_for(model))
    for weight in rebuilt(model.backbone).weights:
        weight.assign(weight * 0)
    np.testing.assert_array_equal(model.embed(images_for(model)), before)


def test_an_export_has_the_file_and_its_facts(network, tmp_path):
    folder = keras_file.export(network, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["backbone.keras", "model.json"]
    assert keras.models.load_model(folder / "backbone.keras").output_shape == (None, network.feature_size)


def test_saving_again_replaces_the_file_and_leaves_nothing_beside_it(networks, tmp_path):
    for name in ("resnet18_cifar", "small_conv"):
        keras_file.save(networks[name].backbone, tmp_path / "backbone.keras")
    assert [path.name for path in tmp_path.iterdir()] == ["backbone.keras"]
    assert keras.models.load_model(tmp_path / "backbone.keras").name == "small_conv"


def test_a_network_of_mixed_precision_becomes_float32(network_of, images_for):
    usual = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = network_of("small_conv", (13, 11, 1))
    finally:
        keras.config.set_dtype_policy(usual)
    copy = rebuilt(model.backbone)
    assert {layer.compute_dtype for layer in copy.layers} == {"float32"}
    np.testing.assert_allclose(copy(images_for(model), training=False), model.embed(images_for(model)), atol=1e-2)


class Doubling(keras.layers.Layer):
    def call(self, x):
        return 2 * x


def test_a_layer_that_plain_keras_does_not_know_is_refused():
    inputs = keras.Input((5,))
    with pytest.raises(ValueError, match=r"Layer twice of own is a .*Doubling, .* Export this network as saved_model"):
        rebuilt(keras.Model(inputs, Doubling(name="twice")(inputs), name="own"))


class Subclassed(keras.Model):
    def call(self, x):
        return x


def test_a_network_that_is_not_functional_is_refused():
    with pytest.raises(ValueError, match="is a Subclassed and not a functional"):
        rebuilt(Subclassed(name="own"))
