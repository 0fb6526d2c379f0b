"""TFLite files count only when LiteRT has run them."""

import json

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from selabel_tf.export import runtimes, tflite
from selabel_tf.export.parity import row_cosines
from selabel_tf.models import SelfLabelModel


@pytest.fixture(scope="module")
def float_files(networks):
    """name of the backbone -> the file without quantisation."""
    return {name: tflite.convert(model) for name, model in networks.items()}


def run(data, images):
    return Interpreter(model_content=data).get_signature_runner("serving_default")(images=images)


def test_float_files_give_the_features_and_clusters_of_keras(network, images_for, float_files):
    images = images_for(network)
    found = run(float_files[network.backbone.name], images)
    expected = network.embed(images)
    np.testing.assert_allclose(found["features"], expected, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_array_equal(found["clusters"], network.assign(images))
    for head in range(2):
        most = np.exp(network.heads.log_probabilities(expected, head).numpy()).max(axis=1)
        np.testing.assert_allclose(found["probabilities"][:, head], most, rtol=1e-4)


@pytest.mark.parametrize("quantize, cosine, share", [("float16", 0.9999, 0.6), ("dynamic", 0.98, 0.4)])
def test_smaller_weights_keep_the_direction_of_features(network, images_for, float_files, quantize, cosine, share):
    images = images_for(network)
    data = tflite.convert(network, quantize=quantize)
    assert row_cosines(run(data, images)["features"], network.embed(images)).min() >= cosine
    assert len(data) < share * len(float_files[network.backbone.name])


@pytest.mark.parametrize("batch", [None, 5])
def test_int8_files_run_and_keep_the_direction_of_features(network, images_for, float_files, batch, tmp_path):
    representative = images_for(network, 53, seed=11)
    folder = tflite.export(network, tmp_path, quantize="int8", batch=batch, representative=representative)
    images = images_for(network)
    found = runtimes.load(folder)(images)
    assert row_cosines(found["features"], network.embed(images)).min() >= 0.98
    assert np.mean(found["clusters"] == network.assign(images)) > 0.8
    assert (folder / "model.tflite").stat().st_size < 0.4 * len(float_files[network.backbone.name])
    facts = json.loads((folder / "model.json").read_text())
    assert (facts["quantize"], facts["batch"], facts["num_clusters"]) == ("int8", batch, [3, 5])
    assert facts["preprocessing"]["image_shape"] == list(network.image_shape)


def test_a_dynamic_file_takes_any_number_and_a_fixed_one_its_own(networks, images_for, float_files):
    model, data = networks["small_conv"], float_files["small_conv"]
    for count in (1, 7, 3):
        assert run(data, images_for(model, count))["features"].shape == (count, model.feature_size)
    fixed = Interpreter(model_content=tflite.convert(model, batch=3))
    assert list(fixed.get_input_details()[0]["shape_signature"]) == [3, 13, 11, 1]


def test_int8_pooling_survives_maps_that_are_dark_but_for_a_point():
    """The mean of such a map is a thousandth of its maximum: with the map's own scale it would round to nothing."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((32, 32, 3))
    maps = keras.layers.ReLU()(keras.layers.Conv2D(7, 1)(inputs))
    model = SelfLabelModel(keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(maps)), [2], num_examples=5)
    rng = np.random.default_rng(0)
    images = np.zeros((29, 32, 32, 3), np.float32)
    for image in images:
        image[rng.integers(32), rng.integers(32)] = rng.uniform(1, 3, 3)
    found = run(tflite.convert(model, quantize="int8", representative=images), images)["features"]
    assert row_cosines(found, model.embed(images)).min() > 0.99


def test_mistakes_are_named(networks, images_for, tmp_path):
    model = networks["small_conv"]
    with pytest.raises(ValueError, match=r"quantize='int4' is unknown. Available: none, float16, dynamic, int8."):
        tflite.convert(model, quantize="int4")
    with pytest.raises(ValueError, match="batch=0 must be at least 1"):
        tflite.convert(model, batch=0)
    with pytest.raises(ValueError, match="needs representative images"):
        tflite.convert(model, quantize="int8")
    with pytest.raises(ValueError, match=r"shape \[3, 13, 11, 1\], expected .* with n at least 5"):
        tflite.convert(model, quantize="int8", batch=5, representative=images_for(model, 3))
    with pytest.raises(ValueError, match="int4"):
        tflite.export(model, tmp_path / "out", quantize="int4")
    assert not (tmp_path / "out").exists()
