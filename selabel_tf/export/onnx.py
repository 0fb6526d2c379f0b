"""ONNX: the backbone as model.onnx, for onnxruntime and what else reads it. Images [n, h, w, c] -> features [n, D].

Keras converts by tf2onnx. That and onnx are an extra: pip install selabel_tf[onnx].
"""

import importlib.util
import warnings
from pathlib import Path

import tensorflow as tf

from .model_facts import describe
from .preprocessing import Preprocessing
from .stock_layers import rebuilt
from .version_folder import publish, write_facts

FILE = "model.onnx"
NEEDED = ("onnx", "tf2onnx", "onnxruntime")


def export(model, path, *, preprocessing=None, facts=None, check=None) -> Path:
    """Writes the backbone of a SelfLabelModel as the next version folder under `path`: model.onnx and model.json."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"The onnx format needs {', '.join(missing)}, not installed here: pip install 'selabel_tf[onnx]'."
        )
    preprocessing = preprocessing or Preprocessing(model.image_shape)
    described = describe(model, preprocessing, facts)

    def write(folder):
        signature = [tf.TensorSpec([None, *model.image_shape], tf.float32, name="images")]
        backbone = rebuilt(model.backbone)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what Keras mends in tf2onnx for NumPy 2
            backbone.export(str(folder / FILE), format="onnx", input_signature=signature, verbose=False)
        write_facts(folder, described)

    return publish(path, FILE, write, check)
