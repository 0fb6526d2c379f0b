"""SavedModel: what is served is what Keras computes, and it can be trained on."""

import io
import json
import os
import subprocess
import sys

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from selabel_tf.data import from_folder
from selabel_tf.export import saved_model
from selabel_tf.export.preprocessing import Preprocessing


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=1e-5 * np.abs(expected).max())


@pytest.fixture(scope="module")
def exported(networks, tmp_path_factory):
    """name -> version folder."""
    parent = tmp_path_factory.mktemp("exports")
    prepared = {
        "small_conv": Preprocessing((13, 11, 1), "whole", (0.4,), (0.3,)),
        "resnet18_cifar": Preprocessing((17, 17, 3), "centre", (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)),
    }
    return {
        name: saved_model.export(model, parent / name, preprocessing=prepared[name], facts={"run": "test"})
        for name, model in networks.items()
    }


@pytest.fixture(params=["small_conv", "resnet18_cifar"])
def pair(request, networks, exported):
    """(model, folder) of each network."""
    return networks[request.param], exported[request.param]


def test_the_default_signature_gives_the_features(pair, images_for):
    model, folder = pair
    network, images = tf.saved_model.load(folder), images_for(model)
    close(network.signatures["serving_default"](images=images)["features"], model.embed(images))
    close(network(images), model.embed(images))
    close(network(images[:1], training=False), model.embed(images[:1]))


def test_clusters_are_those_of_assign(pair, images_for):
    model, folder = pair
    images = images_for(model)
    found = tf.saved_model.load(folder).signatures["clusters"](images=images)
    np.testing.assert_array_equal(found["cluster"], model.assign(images))
    assert found["cluster"].dtype == tf.int32
    for head, k in enumerate(model.num_clusters):
        probabilities = np.exp(model.heads.log_probabilities(model.embed(images), head).numpy())  # [n, k]
        assert probabilities.shape[1] == k
        np.testing.assert_allclose(found["probability"][:, head], probabilities.max(axis=1), rtol=1e-4)


def test_features_of_files_are_those_of_evaluation(networks, exported, tmp_path):
    rng = np.random.default_rng(2)
    for number in range(5):
        coarse = PIL.Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
        coarse.resize((31 + number, 43 - number)).save(tmp_path / f"{number}.{'png' if number % 2 else 'jpg'}")
    source = from_folder(tmp_path).augmented("centre_crop", 17, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    expected = networks["resnet18_cifar"].embed(next(iter(source.plain_batches(5)))[0])
    served = tf.saved_model.load(exported["resnet18_cifar"]).signatures["features_from_bytes"]
    found = served(images=tf.constant([path.read_bytes() for path in sorted(tmp_path.iterdir())]))["features"]
    close(found, expected)


def test_bytes_that_are_no_image_are_a_clear_error(exported):
    served = tf.saved_model.load(exported["resnet18_cifar"]).signatures["features_from_bytes"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not begin like one"):
        served(images=tf.constant([b"no image"]))


@pytest.mark.parametrize("signature", ["serving_default", "clusters"])
def test_images_of_a_wrong_size_are_an_error(exported, signature):
    network = tf.saved_model.load(exported["resnet18_cifar"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2,19,17,3\] is not compatible .* \[\?,17,17,3\]"):
        network.signatures[signature](images=tf.zeros([2, 19, 17, 3]))
    with pytest.raises(ValueError, match="19, 17, 3"):
        network(tf.zeros([2, 19, 17, 3]))


def test_the_facts_travel_with_it(pair):
    model, folder = pair
    facts = json.loads((folder / "assets" / "model.json").read_text())
    assert facts["preprocessing"]["image_shape"] == list(model.image_shape)
    assert (facts["feature_size"], facts["num_clusters"], facts["run"]) == (model.feature_size, [3, 5], "test")


def test_a_reloaded_export_can_be_fine_tuned(pair, images_for):
    model, folder = pair
    network, images = tf.saved_model.load(folder), images_for(model)
    assert len(network.trainable_variables) == len(model.backbone.trainable_variables)
    assert len(network.variables) == len(model.backbone.variables) + len(model.heads.variables)
    classes = np.arange(len(images)) % 3
    head = keras.layers.Dense(3)
    head.build((None, model.feature_size))
    variables = [*network.trainable_variables, *(v.value for v in head.trainable_variables)]
    before = [v.numpy() for v in network.variables]
    losses = []
    for _ in range(7):
        with tf.GradientTape() as tape:
            logits = head(network(images, training=True))
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, logits))
        losses.append(float(loss))
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.03 * gradient)
    assert losses[-1] < 0.9 * losses[0]
    heads = len(model.heads.variables)
    changed = [not np.array_equal(old, v.numpy()) for old, v in zip(before, network.variables, strict=True)]
    assert changed == [True] * (len(changed) - heads) + [False] * heads  # weights and BatchNorm's statistics
    close(model.embed(images), tf.saved_model.load(folder)(images))  # the export and the model stay as they were


def test_it_trains_inside_a_keras_model(pair, images_for):
    model, folder = pair
    layer = keras.layers.TFSMLayer(folder, "features", call_training_endpoint="features_in_training")
    images = images_for(model)
    close(layer(images), model.embed(images))
    assert len(layer.trainable_weights) == len(model.backbone.trainable_variables)
    network = keras.Sequential([keras.Input(model.image_shape), layer, keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(keras.optimizers.SGD(0.03), loss)
    history = network.fit(images, np.arange(len(images)) % 3, batch_size=len(images), epochs=7, verbose=0)
    assert history.history["loss"][-1] < 0.9 * history.history["loss"][0]


def test_the_default_signature_is_a_layer_too(pair, images_for):
    model, folder = pair
    images = images_for(model)
    close(keras.layers.TFSMLayer(folder, "serving_default")(images)["features"], model.embed(images))


def command_line(*arguments):
    program = os.path.join(os.path.dirname(sys.executable), "saved_model_cli")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([program, *arguments], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_saved_model_cli_shows_the_signatures(exported):
    output = command_line("show", "--dir", str(exported["resnet18_cifar"]), "--all")
    for name in ("serving_default", "features_from_bytes", "clusters"):
        assert f"signature_def['{name}']" in output
    assert "shape: (-1, 17, 17, 3)" in output
    assert "dtype: DT_STRING" in output


def test_saved_model_cli_runs_it(exported, networks, images_for, tmp_path):
    model = networks["resnet18_cifar"]
    images = images_for(model, 3)
    np.save(tmp_path / "images.npy", images)
    place = ["--dir", str(exported["resnet18_cifar"]), "--tag_set", "serve", "--signature_def", "serving_default"]
    command_line("run", *place, "--inputs", f"images={tmp_path / 'images.npy'}", "--outdir", str(tmp_path))
    close(np.load(tmp_path / "features.npy"), model.embed(images))


def test_a_second_export_takes_the_next_number(networks, exported):
    again = saved_model.export(networks["small_conv"], exported["small_conv"].parent)
    assert (exported["small_conv"].name, again.name) == ("1", "2")


def test_a_failed_export_leaves_nothing(networks, tmp_path, monkeypatch):
    def half(module, folder, **_):
        with open(os.path.join(folder, "saved_model.pb"), "wb") as file:
            file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(tf.saved_model, "save", half)
    with pytest.raises(OSError, match="disk full"):
        saved_model.export(networks["small_conv"], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_preprocessing_of_another_size_is_refused(networks, tmp_path):
    with pytest.raises(ValueError, match="gives images 19x19x1, the network takes 13x11x1"):
        saved_model.export(networks["small_conv"], tmp_path, preprocessing=Preprocessing((19, 19, 1)))


def test_a_run_in_mixed_precision_serves_float32(network_of, images_for, tmp_path):
    usual = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = network_of("small_conv", (13, 11, 1))
    finally:
        keras.config.set_dtype_policy(usual)
    images = images_for(model)
    network = tf.saved_model.load(saved_model.export(model, tmp_path))
    found = network.signatures["serving_default"](images=images)["features"]
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, model.embed(images), atol=1e-2)


def test_a_png_of_one_channel_is_served(exported):
    buffer = io.BytesIO()
    PIL.Image.fromarray(np.full((13, 11), 99, np.uint8)).save(buffer, "PNG")
    served = tf.saved_model.load(exported["small_conv"]).signatures["features_from_bytes"]
    assert served(images=tf.constant([buffer.getvalue()] * 2))["features"].shape[0] == 2
