"""Backbones against their recipes: counts, names, maps, initial weights, and a float64 NumPy forward pass."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.models.backbones import BACKBONES, backbone
from selabel_tf.models.backbones.layers import FusedBatchNormalization, convolution

# What PyTorch counts as parameters: the trainable weights; BatchNorm's moving statistics are buffers there.
PARAMETERS = {
    "alexnet": 58_284_096,
    "alexnet_small": 57_006_144,
    "resnet18": 11_176_512,
    "resnet34": 21_284_672,
    "resnet50": 23_508_032,
    "resnet50v2": 23_496_256,
}
FEATURES = {
    "alexnet": 4096,
    "alexnet_small": 4096,
    "resnet18": 512,
    "resnet34": 512,
    "resnet50": 2048,
    "resnet50v2": 2048,
}


@functools.cache
def full_size(name):
    """At 224 and synchronized, built once: the large ones take seconds."""
    keras.utils.set_random_seed(0)
    return backbone(name, (224, 224, 3), synchronized=True)


def num_parameters(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


def batch_norms(model):
    return [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]


def map_size(model, layer):
    _, height, width, _ = model.get_layer(layer).output.shape
    assert height == width
    return height


def inputs_of(layer):
    """Names of the layers whose outputs this one reads."""
    return [parent.operation.name for parent in layer._inbound_nodes[0].parent_nodes]


# --- recipes ---


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_number_of_parameters_and_features_is_the_recipes(name):
    model = full_size(name)
    assert num_parameters(model) == PARAMETERS[name]
    assert model.output_shape == (None, FEATURES[name])
    assert model.name == name


def test_resnet18_cifar_at_width_16_has_the_parameters_of_the_cpu_protocol():
    def conv_bn(kernel, fan_in, filters):
        return kernel * kernel * fan_in * filters + 2 * filters

    expected, fan_in = conv_bn(3, 3, 16), 16
    for filters in (16, 32, 64, 128):
        expected += conv_bn(3, fan_in, filters) + 3 * conv_bn(3, filters, filters)
        expected += conv_bn(1, fan_in, filters) if fan_in != filters else 0
        fan_in = filters
    model = backbone("resnet18_cifar", (32, 32, 3), width=16)
    assert num_parameters(model) == expected
    assert model.output_shape == (None, 128)


def test_resnet18_cifar_is_64_wide_unless_told():
    assert backbone("resnet18_cifar", (7, 5, 3)).output_shape == (None, 512)


def test_small_conv_gives_512_features_at_16_by_16():
    model = backbone("small_conv", (16, 16, 1))
    assert model.output_shape == (None, 512)
    assert len([layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)]) == 5
    assert [map_size(model, f"conv{n}_relu") for n in range(1, 6)] == [16, 8, 8, 4, 4]


@pytest.mark.parametrize("name", ["alexnet", "alexnet_small"])
def test_alexnet_maps_are_55_27_13_13_13_and_6_at_the_end(name):
    model = full_size(name)
    assert [map_size(model, f"conv{n}_relu") for n in range(1, 6)] == [55, 27, 13, 13, 13]
    assert [map_size(model, f"conv{n}_pool") for n in (1, 2, 5)] == [27, 13, 6]


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50", "resnet50v2"])
def test_resnet_maps_are_112_56_28_14_7(name):
    model = full_size(name)
    assert map_size(model, "conv1") == 112
    assert [map_size(model, f"stage{n}_block2_add") for n in range(1, 5)] == [56, 28, 14, 7]


def test_resnet18_cifar_keeps_the_image_size_in_its_first_stage():
    model = backbone("resnet18_cifar", (32, 32, 3), width=2)
    assert [map_size(model, f"stage{n}_block2_add") for n in range(1, 5)] == [32, 16, 8, 4]


@pytest.mark.parametrize(
    ("name", "channels"),
    [("alexnet", [96, 256, 384, 384, 256]), ("alexnet_small", [64, 192, 384, 256, 256])],
)
def test_alexnet_layers_are_reachable_by_name(name, channels):
    model = full_size(name)
    assert [model.get_layer(f"conv{n}").filters for n in range(1, 6)] == channels
    assert [model.get_layer(layer).units for layer in ("fc6", "fc7")] == [4096, 4096]
    for n in range(1, 6):
        assert inputs_of(model.get_layer(f"conv{n}_bn")) == [f"conv{n}"]
        assert inputs_of(model.get_layer(f"conv{n}_relu")) == [f"conv{n}_bn"]
    assert inputs_of(model.get_layer("fc6")) == ["fc6_dropout"]
    assert inputs_of(model.get_layer("fc7")) == ["fc7_dropout"]
    assert model.layers[-1].name == "fc7_relu"


def test_resnet50v2_has_no_batch_norm_or_relu_after_the_stem_before_the_pool_or_in_shortcuts():
    model = full_size("resnet50v2")
    assert inputs_of(model.get_layer("conv1_pool")) == ["conv1"]
    assert inputs_of(model.get_layer("stage1_block1_conv1_bn")) == ["conv1_pool_stride"]
    assert inputs_of(model.get_layer("pool")) == ["stage4_block3_add"]
    for stage in range(1, 5):
        assert inputs_of(model.get_layer(f"stage{stage}_block1_shortcut")) == [f"stage{stage}_block1_conv1_relu"]
        shortcut = f"stage{stage}_block1_shortcut"
        assert inputs_of(model.get_layer(f"stage{stage}_block1_add")) == [
            shortcut,
            f"stage{stage}_block1_conv3",
        ]
    assert len(batch_norms(model)) == 3 * (3 + 4 + 6 + 3)


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50", "resnet50v2"])
def test_resnet_convolutions_have_no_bias(name):
    convolutions = [layer for layer in full_size(name).layers if isinstance(layer, keras.layers.Conv2D)]
    assert not any(layer.use_bias for layer in convolutions)


# --- constants and initial weights ---


@pytest.mark.parametrize("name", PARAMETERS)
def test_batch_norm_starts_as_the_identity_with_the_recipes_constants(name):
    for layer in batch_norms(full_size(name)):
        assert (layer.momentum, layer.epsilon) == (0.9, 1e-5)
        for weight, start in zip(layer.get_weights(), (1, 0, 0, 1), strict=True):  # gamma, beta, mean, variance
            np.testing.assert_array_equal(weight, start)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("alexnet", "conv1"),
        ("alexnet", "conv2"),
        ("resnet18", "stage4_block1_shortcut"),
        ("resnet50", "stage3_block2_conv3"),
        ("resnet50v2", "stage4_block2_conv2"),
    ],
)
def test_convolutions_start_normal_with_variance_two_over_fan_out(name, layer):
    kernel = full_size(name).get_layer(layer).kernel.numpy()
    expected = np.sqrt(2.0 / (kernel.shape[0] * kernel.shape[1] * kernel.shape[-1]))
    assert abs(kernel.mean()) < 0.02 * expected
    np.testing.assert_allclose(kernel.std(), expected, rtol=0.02)
    # 1.24% of a normal distribution lies beyond 2.5 standard deviations, nothing of Keras' truncated default.
    np.testing.assert_allclose(np.mean(np.abs(kernel) > 2.5 * expected), 0.0124, rtol=0.2)


def test_dense_layers_start_at_0_01_and_biases_at_zero():
    model = full_size("alexnet")
    for name in ("fc6", "fc7"):
        np.testing.assert_allclose(model.get_layer(name).kernel[:499].numpy().std(), 0.01, rtol=0.02)
    for name in ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7"):
        np.testing.assert_array_equal(model.get_layer(name).bias.numpy(), 0)


def test_layers_of_equal_shape_start_with_different_weights():
    model = full_size("resnet18")
    first = model.get_layer("stage1_block1_conv1").kernel.numpy()
    second = model.get_layer("stage1_block1_conv2").kernel.numpy()
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.05


def test_the_global_seed_decides_the_weights():
    weights = []
    for seed in (3, 3, 5):
        keras.utils.set_random_seed(seed)
        weights.append(backbone("small_conv", (7, 5, 1)).get_layer("conv3").kernel.numpy())
    np.testing.assert_array_equal(weights[0], weights[1])
    assert np.abs(weights[0] - weights[2]).max() > 0.01


# --- the forward pass against float64 NumPy ---


def numpy_windows(x, size, strides, padding, fill):
    """[B, h, w, c] -> [B, h', w', size, size, c], PyTorch's windows."""
    x = np.pad(x, [(0, 0), (padding, padding), (padding, padding), (0, 0)], constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    return np.moveaxis(windows[:, ::strides, ::strides], 3, -1)


class NumpyNetwork:
    """The operations of a backbone in float64, weights taken from its layers by name."""

    def __init__(self, model):
        self.model = model

    def conv(self, x, name, strides=1, padding=0):
        kernel, *bias = (w.astype(np.float64) for w in self.model.get_layer(name).get_weights())
        windows = numpy_windows(x, kernel.shape[0], strides, padding, 0.0)
        return np.tensordot(windows, kernel, axes=3) + sum(bias)

    def bn(self, x, name):
        gamma, beta, mean, variance = (w.astype(np.float64) for w in self.model.get_layer(name).get_weights())
        return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta

    def conv_bn(self, x, name, strides=1, padding=0):
        return self.bn(self.conv(x, name, strides, padding), f"{name}_bn")

    def max_pool(self, x, size, strides, padding):
        return numpy_windows(x, size, strides, padding, -np.inf).max(axis=(3, 4))


def relu(x):
    return np.maximum(x, 0.0)


@contextlib.contextmanager
def random_batch_norms(model):
    """Weights far from the identity while inside; full-size models are shared between tests."""
    generator = np.random.default_rng(2)
    before = [layer.get_weights() for layer in batch_norms(model)]
    for layer in batch_norms(model):
        bounds = ((0.5, 1.5), (-1, 1), (-1, 1), (0.5, 2))  # gamma, beta, mean, variance
        layer.set_weights([generator.uniform(*pair, layer.gamma.shape) for pair in bounds])
    try:
        yield
    finally:
        for layer, weights in zip(batch_norms(model), before, strict=True):
            layer.set_weights(weights)


def images(*shape):
    return np.random.default_rng(1).normal(size=shape).astype("float32")


@pytest.mark.parametrize(("height", "width"), [(13, 11), (16, 14)])
@pytest.mark.parametrize(("kernel", "strides", "padding"), [(3, 1, 1), (3, 2, 1), (7, 2, 3), (1, 2, 0), (5, 4, 1)])
def test_convolution_pads_evenly_at_every_stride(kernel, strides, padding, height, width):
    inputs = keras.Input((height, width, 3))
    model = keras.Model(
        inputs, convolution(inputs, 2, kernel, name="conv", strides=strides, padding=padding, use_bias=True)
    )
    model.get_layer("conv").bias.assign([0.5, -2.0])
    x = images(2, height, width, 3)
    np.testing.assert_allclose(model(x), NumpyNetwork(model).conv(x, "conv", strides, padding), rtol=1e-4, atol=1e-4)


NARROW = """
import os
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
import sys, keras, numpy as np, tensorflow as tf
from selabel_tf.models.backbones.layers import convolution
side, channels = map(int, sys.argv[1:])
inputs = keras.Input((side, side, channels))
model = keras.Model(inputs, convolution(inputs, 2 * channels, 1, strides=2, name="conv"))
rng = np.random.default_rng(0)
for batch in (1, 5, 5, 5, 64):
    x = rng.normal(size=(batch, side, side, channels)).astype(np.float32)
    with tf.GradientTape() as tape:
        y = model(x)
        g = rng.normal(size=y.shape).astype(np.float32)
        loss = tf.reduce_sum(y * g)
    found = tape.gradient(loss, model.get_layer("conv").kernel)[0, 0]
    np.testing.assert_allclose(found, np.einsum("bhwc,bhwf->cf", x[:, ::2, ::2], g), rtol=1e-3, atol=1e-3)
"""


@pytest.mark.parametrize(("side", "channels"), [(28, 4), (28, 8), (12, 12), (20, 16)])
def test_gradients_of_strided_convolutions_of_few_channels_are_right_and_nothing_dies(python, side, channels):
    done = python("-c", NARROW, side, channels)
    assert done.returncode == 0, done.stderr


def test_small_conv_computes_what_its_table_says():
    model, x = backbone("small_conv", (11, 7, 1)), images(3, 11, 7, 1)
    with random_batch_norms(model):
        net, expected = NumpyNetwork(model), x
        for number, strides in enumerate((1, 2, 1, 2, 1), start=1):
            expected = relu(net.conv_bn(expected, f"conv{number}", strides, 1))
        np.testing.assert_allclose(model(x), expected.reshape(3, -1), rtol=1e-3, atol=1e-3)


def test_resnet18_cifar_computes_relu_of_shortcut_plus_branch():
    model, x = backbone("resnet18_cifar", (11, 7, 3), width=5), images(3, 11, 7, 3)
    with random_batch_norms(model):
        net = NumpyNetwork(model)
        y = relu(net.conv_bn(x, "conv1", 1, 1))
        for stage in range(1, 5):
            for block in (1, 2):
                name, strides = f"stage{stage}_block{block}", 2 if stage > 1 and block == 1 else 1
                branch = relu(net.conv_bn(y, f"{name}_conv1", strides, 1))
                branch = net.conv_bn(branch, f"{name}_conv2", 1, 1)
                y = relu(branch + (net.conv_bn(y, f"{name}_shortcut", 2) if strides == 2 else y))
        assert y.shape == (3, 2, 1, 40)
        np.testing.assert_allclose(model(x), y.mean(axis=(1, 2)), rtol=1e-3, atol=1e-3)


# Enough of a ResNet-50 to meet both kinds of shortcut and a stride.
FIRST_BLOCKS = [("stage1_block1", 1), ("stage1_block2", 1), ("stage1_block3", 1), ("stage2_block1", 2)]


def test_resnet50_has_its_stride_on_the_3x3_and_batch_norm_in_its_shortcuts():
    whole, x = full_size("resnet50"), images(1, 224, 224, 3)
    model = keras.Model(whole.input, whole.get_layer("stage2_block1_relu").output)
    with random_batch_norms(model):
        net = NumpyNetwork(model)
        y = net.max_pool(relu(net.conv_bn(x, "conv1", 2, 3)), 3, 2, 1)
        for name, strides in FIRST_BLOCKS:
            branch = relu(net.conv_bn(y, f"{name}_conv1"))
            branch = relu(net.conv_bn(branch, f"{name}_conv2", strides, 1))
            branch = net.conv_bn(branch, f"{name}_conv3")
            y = relu(branch + (net.conv_bn(y, f"{name}_shortcut", strides) if name.endswith("block1") else y))
        np.testing.assert_allclose(model(x), y, rtol=1e-3, atol=5e-3)


def test_resnet50v2_normalises_before_it_convolves_and_pools_its_border_without_zeros():
    whole, x = full_size("resnet50v2"), images(1, 224, 224, 3)
    outputs = [whole.get_layer(name).output for name in ("conv1_pool_stride", "stage2_block1_add")]
    model = keras.Model(whole.input, outputs)
    with random_batch_norms(model):
        net = NumpyNetwork(model)
        pooled = y = net.max_pool(net.conv(x, "conv1", 2, 3), 3, 2, 1)
        for name, strides in FIRST_BLOCKS:
            activated = relu(net.bn(y, f"{name}_conv1_bn"))
            branch = net.conv(activated, f"{name}_conv1")
            branch = net.conv(relu(net.bn(branch, f"{name}_conv2_bn")), f"{name}_conv2", strides, 1)
            branch = net.conv(relu(net.bn(branch, f"{name}_conv3_bn")), f"{name}_conv3")
            y = branch + (net.conv(activated, f"{name}_shortcut", strides) if name.endswith("block1") else y)
        actual_pooled, actual = model(x)
        np.testing.assert_allclose(actual_pooled, pooled, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(actual, y, rtol=1e-3, atol=5e-3)


# --- options and errors ---


@pytest.mark.parametrize("name", PARAMETERS)
def test_synchronized_reaches_every_batch_norm(name):
    assert all(layer.synchronized for layer in batch_norms(full_size(name)))


@pytest.mark.parametrize(("name", "options"), [("resnet18_cifar", {"width": 2}), ("small_conv", {})])
def test_batch_norm_is_synchronized_only_when_asked(name, options):
    for synchronized in ({}, {"synchronized": True}):
        model = backbone(name, (5, 3, 1), **options, **synchronized)
        assert {layer.synchronized for layer in batch_norms(model)} == {bool(synchronized)}


def test_alexnet_takes_gray_images_down_to_63_pixels_and_a_dropout_rate():
    model = backbone("alexnet_small", (63, 67, 1), dropout=0.25)
    assert model.get_layer("conv5_pool").output.shape[1:3] == (1, 1)
    assert [model.get_layer(f"{layer}_dropout").rate for layer in ("fc6", "fc7")] == [0.25, 0.25]
    assert full_size("alexnet").get_layer("fc6_dropout").rate == 0.5


@pytest.mark.parametrize(("name", "options"), [("resnet18_cifar", {"width": 2}), ("small_conv", {})])
def test_padded_backbones_take_even_a_single_gray_pixel(name, options):
    model = backbone(name, (1, 1, 1), **options)
    assert np.all(np.isfinite(model(images(2, 1, 1, 1))))


@pytest.mark.parametrize("name", ["alexnet", "alexnet_small"])
@pytest.mark.parametrize("shape", [(62, 97, 3), (97, 62, 3)])
def test_images_too_small_are_refused_with_the_smallest_side(name, shape):
    with pytest.raises(ValueError, match=r"too small.*smallest side it takes is 63"):
        backbone(name, shape)


@pytest.mark.parametrize("shape", [(32, 32), (None, 32, 3), (0, 32, 3), (32.0, 32, 3), (5, 32, 32, 3), 32, "32"])
def test_an_image_shape_that_is_none_is_refused(shape):
    with pytest.raises(ValueError, match=r"is not \(height, width, channels\) in positive whole numbers"):
        backbone("small_conv", shape)


@pytest.mark.parametrize("channels", [2, 4, 32])
def test_images_with_other_than_1_or_3_channels_are_refused(channels):
    with pytest.raises(ValueError, match=f"has {channels} channels; expected 1 .gray. or 3 .colour."):
        backbone("small_conv", [32, 32, channels])


def test_an_unknown_backbone_is_answered_with_the_nearest_and_all_names():
    with pytest.raises(ValueError, match=r"Unknown backbone 'resnet81'\. Did you mean 'resnet18'\?") as error:
        backbone("resnet81", (32, 32, 3))
    assert all(name in str(error.value) for name in BACKBONES)
    with pytest.raises(ValueError, match=r"Unknown backbone 'vgg'\. Available: alexnet, "):
        backbone("vgg", (32, 32, 3))


def test_an_unknown_option_is_answered_with_the_options_the_backbone_has():
    with pytest.raises(ValueError, match=r"has no option 'witdh'\. Did you mean 'width'\?.*: width, synchronized\."):
        backbone("resnet18_cifar", (32, 32, 3), witdh=16)
    with pytest.raises(ValueError, match=r"'resnet18' has no option 'dropout'\. Its options: synchronized\."):
        backbone("resnet18", (32, 32, 3), dropout=0.5)


@pytest.mark.parametrize("width", [0, -3, 16.0, None])
def test_a_width_that_is_no_positive_whole_number_is_refused(width):
    with pytest.raises(ValueError, match="expected a whole number of channels, 1 or more"):
        backbone("resnet18_cifar", (32, 32, 3), width=width)


@pytest.mark.parametrize("dropout", [-0.1, 1.5])
def test_a_dropout_rate_outside_0_to_1_is_refused(dropout):
    with pytest.raises(ValueError, match="between 0 and 1"):
        backbone("alexnet_small", (63, 63, 3), dropout=dropout)


# --- saving ---


@pytest.mark.parametrize(("name", "options"), [("resnet18_cifar", {"width": 3}), ("small_conv", {})])
def test_a_backbone_saved_to_keras_format_loads_safely_with_the_same_outputs(tmp_path, name, options):
    model, x = backbone(name, (11, 7, 3), **options), images(5, 11, 7, 3)
    with random_batch_norms(model):
        model.save(tmp_path / "backbone.keras")
        expected = model(x)
    loaded = keras.saving.load_model(tmp_path / "backbone.keras")  # safe mode is the default
    np.testing.assert_allclose(loaded(x), expected, rtol=1e-5, atol=1e-5)
    assert [layer.name for layer in loaded.layers] == [layer.name for layer in model.layers]
    assert [type(layer) for layer in loaded.layers] == [type(layer) for layer in model.layers]


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_layer_is_stock_keras_but_the_registered_batch_norm(name):
    kinds = {type(layer) for layer in full_size(name).layers}
    assert {kind for kind in kinds if not kind.__module__.startswith("keras.")} == {FusedBatchNormalization}


# --- the fused BatchNorm against the stock one ---


def training_pass(layer, x, compiled=True):
    """Outputs, gradients (inputs, gamma, beta) and moving statistics after two training passes."""
    generator = np.random.default_rng(7)
    layer.build(x.shape)
    for weight in layer.trainable_variables:
        weight.assign(generator.uniform(0.5, 1.5, weight.shape))
    direction = generator.normal(size=x.shape)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_mean(tf.cast(y, tf.float64) * direction)
        return [y, *tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])]

    step = tf.function(step) if compiled else step  # oneDNN takes over the fused operation in graphs only
    step(tf.constant(x + 1.0))
    outputs = step(tf.constant(x))
    return [np.asarray(value) for value in (*outputs, *layer.non_trainable_variables)]


def operations(layer, x):
    graph = tf.function(lambda x: layer(x, training=True)).get_concrete_function(tf.constant(x)).graph
    return {operation.type for operation in graph.get_operations()}


@pytest.mark.parametrize("compiled", [False, True])
def test_fused_batch_norm_matches_the_stock_layer_in_training(compiled):
    x, constants = 3.0 + 2.0 * images(7, 5, 3, 11), {"momentum": 0.9, "epsilon": 1e-5}
    layer = FusedBatchNormalization(**constants)
    ours = training_pass(layer, x, compiled)
    stock = training_pass(keras.layers.BatchNormalization(**constants), x, compiled)
    assert "FusedBatchNormV3" in operations(layer, x)
    assert len(ours) == 6
    for value, expected in zip(ours, stock, strict=True):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


def test_fused_batch_norm_matches_the_stock_layer_in_mixed_precision():
    x, options = 3.0 + 2.0 * images(7, 5, 3, 11), {"momentum": 0.9, "epsilon": 1e-5, "dtype": "mixed_float16"}
    layer = FusedBatchNormalization(**options)
    ours = training_pass(layer, x)
    stock = training_pass(keras.layers.BatchNormalization(**options), x)
    assert "FusedBatchNormV3" in operations(layer, x)
    assert ours[0].dtype == np.float16
    for value, expected in zip(ours, stock, strict=True):
        assert value.dtype == expected.dtype
        np.testing.assert_allclose(value, expected, rtol=4e-3, atol=4e-3)


def test_a_single_value_per_channel_becomes_beta_with_variance_zero():
    layer = FusedBatchNormalization(momentum=0.9, epsilon=1e-5, beta_initializer="ones")
    np.testing.assert_allclose(layer(np.full((1, 1, 1, 3), 5.0, "float32"), training=True), 1.0, atol=1e-4)
    np.testing.assert_allclose(layer.moving_mean, 0.5, rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, 0.9, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((7, 11), {}),
        ((7, 5, 3, 11), {"axis": 1}),
        ((7, 5, 3, 11), {"center": False}),
        ((7, 5, 3, 11), {"scale": False}),
        ((7, 5, 3, 11), {"renorm": True}),
        ((7, 5, 3, 11), {"synchronized": True}),
        ((7, 5, 3, 11), {"dtype": "float64"}),
    ],
)
def test_what_the_fused_operation_does_not_cover_runs_the_stock_code(shape, options):
    x = images(*shape).astype(options.get("dtype", "float32"))
    layer = FusedBatchNormalization(**options)
    ours = training_pass(layer, x, compiled=False)
    stock = training_pass(keras.layers.BatchNormalization(**options), x, compiled=False)
    assert "FusedBatchNormV3" not in operations(layer, x)
    for value, expected in zip(ours, stock, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 5, 3, 11), (4, 11)])  # the fused operation, and the stock code
def test_moving_statistics_are_means_over_replicas(shape, two_replicas):
    with two_replicas.scope():
        layer = FusedBatchNormalization(momentum=0.9)
        layer.build(shape)
    x = images(2, *shape) * np.float32([1, 3]).reshape([2] + [1] * len(shape))  # each replica has other moments

    def on_each():
        return layer(tf.gather(x, tf.distribute.get_replica_context().replica_id_in_sync_group), training=True)

    tf.function(lambda: two_replicas.run(on_each))()
    axes = tuple(range(1, len(shape)))
    expected = 0.1 * x.mean(axes).mean(0), 0.9 + 0.1 * x.var(axes).mean(0)
    for variable, wanted in zip((layer.moving_mean, layer.moving_variance), expected, strict=True):
        first, second = (copy.numpy() for copy in variable.value.values)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(first, wanted, rtol=1e-4, atol=1e-6)


def test_a_mask_runs_the_stock_code():
    x, mask = images(7, 5, 3, 11), np.random.default_rng(3).random((7, 5, 3)) < 0.5
    ours, stock = FusedBatchNormalization(), keras.layers.BatchNormalization()
    np.testing.assert_allclose(ours(x, training=True, mask=mask), stock(x, training=True, mask=mask), atol=1e-5)
    np.testing.assert_allclose(ours.moving_mean, stock.moving_mean, atol=1e-6)


@pytest.mark.parametrize(("training", "trainable"), [(False, True), (True, False)])
def test_inference_and_frozen_layers_use_and_keep_the_moving_statistics(training, trainable):
    layer = FusedBatchNormalization(epsilon=1e-5)
    layer.build((None, 5, 3, 11))
    layer.trainable = trainable
    mean, variance = np.linspace(-1, 1, 11), np.linspace(0.5, 2, 11)
    layer.moving_mean.assign(mean)
    layer.moving_variance.assign(variance)
    x = images(7, 5, 3, 11)
    expected = (x - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(layer(x, training=training), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(layer.moving_variance, variance, rtol=1e-6)


def test_synchronized_replicas_see_the_moments_of_the_whole_batch(two_replicas):
    x = 3.0 + 2.0 * images(8, 5, 3, 11)
    parts = [x[:5], x[5:]]
    with two_replicas.scope():
        layer = FusedBatchNormalization(momentum=0.9, epsilon=1e-5, synchronized=True)
        layer.build((None, 5, 3, 11))
    per_replica = two_replicas.experimental_distribute_values_from_function(
        lambda context: tf.constant(parts[context.replica_id_in_sync_group])
    )

    @tf.function
    def run(values):
        return two_replicas.run(lambda part: layer(part, training=True), args=(values,))

    outputs = np.concatenate([part.numpy() for part in two_replicas.experimental_local_results(run(per_replica))])
    expected = (x - x.mean(axis=(0, 1, 2))) / np.sqrt(x.var(axis=(0, 1, 2)) + 1e-5)
    np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(layer.moving_mean.numpy(), 0.1 * x.mean(axis=(0, 1, 2)), rtol=1e-4)
