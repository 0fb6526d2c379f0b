"""TFLite: one file for LiteRT, on phones and small machines, in four sizes.

    quantize    weights   arithmetic            of the float file
    none        float32   float32               1
    float16     float16   float32               1/2
    dynamic     int8      float32 or mixed      1/4
    int8        int8      int8, by the ranges that representative images show     1/4

The file has one signature, images [n, h, w, c] -> features [n, D], clusters int32 [n, H], probabilities [n, H]; input
and outputs are float32 in all four. model.json beside it says how images are prepared and what the clusters are.

Global average pooling in int8: as AveragePooling2D the output would have to share the scale of its input, and a mean
is often far smaller than the largest value: features round to 0. As a reduction it was seen to convert and then not to
start ("failed to create XNNPACK runtime"). So int8 files pool by a depthwise convolution with the constant 1 / (h w):
int32 sums, a scale of its own, and a kernel that every runtime has.
"""

import contextlib
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from ..atomic_file import write_atomically
from .model_facts import describe
from .preprocessing import Preprocessing
from .stock_layers import rebuilt
from .version_folder import publish, write_facts

FILE = "model.tflite"
QUANTIZATIONS = ("none", "float16", "dynamic", "int8")


def export(
    model, path, *, quantize="none", batch=None, representative=None, preprocessing=None, facts=None, check=None
) -> Path:
    """Writes a SelfLabelModel as the next version folder under `path`: model.tflite and model.json.

    Args:
        quantize, batch, representative: as in `convert`.
        preprocessing, facts, check: as in saved_model.export.
    """
    preprocessing = preprocessing or Preprocessing(model.image_shape)
    described = {**describe(model, preprocessing, facts), "quantize": quantize, "batch": batch}
    data = convert(model, quantize=quantize, batch=batch, representative=representative)

    def write(folder):
        write_atomically(folder / FILE, data)
        write_facts(folder, described)

    return publish(path, FILE, write, check)


def convert(model, *, quantize="none", batch=None, representative=None) -> bytes:
    """A SelfLabelModel as the content of a .tflite file.

    Args:
        quantize: one of QUANTIZATIONS.
        batch: a fixed number of images per call; None for any number.
        representative: for int8, images float32 [n, h, w, c] prepared as in evaluation, a few hundred of the training
            set; their values set the ranges of the integers.
    """
    if quantize not in QUANTIZATIONS:
        raise ValueError(f"quantize={quantize!r} is unknown. Available: {', '.join(QUANTIZATIONS)}.")
    if batch is not None and batch < 1:
        raise ValueError(f"batch={batch} must be at least 1, or None for any number of images.")
    if quantize == "int8":
        representative = _checked(representative, model.image_shape, batch or 1)
    backbone = rebuilt(model.backbone, _pool_by_convolution if quantize == "int8" else lambda layer: None)
    with tempfile.TemporaryDirectory() as scratch:
        module, function = _network(model, backbone, batch)
        tf.saved_model.save(module, scratch, signatures={"serving_default": function})
        converter = tf.lite.TFLiteConverter.from_saved_model(scratch, signature_keys=["serving_default"])
        if quantize != "none":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantize == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if quantize == "int8":
            blocks = representative.reshape(-1, batch or 1, *model.image_shape)
            converter.representative_dataset = lambda: ({"images": block} for block in blocks)
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        with _without_known_warnings():
            return converter.convert()


def _network(model, backbone, batch):
    """(module, function) of features and clusters; the module holds the variables."""
    projection, heads = model.projection, model.heads

    @tf.function(
        input_signature=[tf.TensorSpec([batch, *model.image_shape], tf.float32, name="images")], autograph=False
    )
    def network(images):
        z = backbone(images, training=False)
        seen = projection(z)
        probabilities = [tf.exp(heads.log_probabilities(seen, head)) for head in range(len(model.num_clusters))]
        return {
            "features": z,
            "clusters": tf.stack([tf.argmax(p, axis=-1, output_type=tf.int32) for p in probabilities], axis=1),
            "probabilities": tf.stack([tf.reduce_max(p, axis=-1) for p in probabilities], axis=1),
        }

    module = tf.Module()
    module.network = network
    module.parameters = [v.value for v in (*backbone.variables, *projection.variables, *heads.variables)]
    return module, network


class _ConvolutionPooling(keras.layers.Layer):
    """[n, h, w, c] -> the mean over h and w, [n, c], as one depthwise convolution."""

    def call(self, maps):
        height, width, channels = maps.shape[1:]
        kernel = tf.fill([height, width, channels, 1], 1.0 / (height * width))
        return tf.reshape(tf.nn.depthwise_conv2d(maps, kernel, [1, 1, 1, 1], "VALID"), [-1, channels])


def _pool_by_convolution(layer):
    if type(layer) is not keras.layers.GlobalAveragePooling2D:
        return None
    plain = not layer.keepdims and layer.data_format == "channels_last" and None not in layer.input.shape[1:]
    return _ConvolutionPooling(name=layer.name) if plain else None


def _checked(representative, image_shape, batch):
    """The images as an array of whole batches."""
    if representative is None:
        raise ValueError(
            "quantize='int8' needs representative images to find the ranges of its integers: give some hundred of the "
            "training set, prepared as in evaluation."
        )
    images = np.asarray(representative, np.float32)
    if images.shape[1:] != tuple(image_shape) or len(images) < batch:
        raise ValueError(
            f"The representative images have shape {list(images.shape)}, expected [n, *{list(image_shape)}] "
            f"with n at least {batch}."
        )
    return images[: len(images) // batch * batch]


@contextlib.contextmanager
def _without_known_warnings():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Statistics for quantized inputs were expected")
        warnings.filterwarnings("ignore", message=r"\s*Warning: tf.lite.Interpreter is deprecated")  # by its calibrator
        yield
