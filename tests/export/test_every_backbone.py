"""Every backbone to every format, small inputs. Minutes: `pytest -m slow`."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.export import keras_file, onnx, parity, saved_model, tflite
from selabel_tf.models.backbones import BACKBONES

SIDES = {"alexnet": 67, "alexnet_small": 67}
FORMS = {"saved_model": saved_model, "keras": keras_file, "onnx": onnx} | dict.fromkeys(tflite.QUANTIZATIONS, tflite)


@pytest.fixture(scope="module", params=BACKBONES)
def any_network(request, network_of):
    side = SIDES.get(request.param, 37)
    options = {"width": 8} if request.param == "resnet18_cifar" else {}
    return network_of(request.param, (side, side, 3), **options)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_backbone_leaves_in_every_format(any_network, images_for, form, tmp_path):
    if form == "onnx" and any(importlib.util.find_spec(name) is None for name in onnx.NEEDED):
        pytest.skip("the extra 'onnx' is not installed")
    options = {"quantize": form} if form in tflite.QUANTIZATIONS else {}
    if form == "int8":
        options["representative"] = images_for(any_network, 53, seed=11)
    images = images_for(any_network, 23)
    folder = FORMS[form].export(any_network, tmp_path, **options)
    batches = tf.data.Dataset.from_tensor_slices((images, np.arange(23))).batch(11)
    float_bytes = len(tflite.convert(any_network)) if form == "int8" else None
    found = parity.measure(folder, any_network.backbone, batches, 23, float_bytes=float_bytes, timed=False)
    assert found.breaches(parity.bounds(options.get("quantize", "none"))) == []
