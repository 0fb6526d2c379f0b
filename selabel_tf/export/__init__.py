"""What leaves the building: files that other programs read."""

from . import (
    cluster_folders,
    confidence,
    keras_file,
    labels,
    model_card,
    onnx,
    parity,
    preprocessing,
    runtimes,
    saved_model,
    tflite,
)

__all__ = [
    "cluster_folders",
    "confidence",
    "keras_file",
    "labels",
    "model_card",
    "onnx",
    "parity",
    "preprocessing",
    "runtimes",
    "saved_model",
    "tflite",
]
