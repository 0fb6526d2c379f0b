"""What leaves the building: files that other programs read."""

from . import keras_file, labels, onnx, parity, preprocessing, runtimes, saved_model, tflite

__all__ = ["keras_file", "labels", "onnx", "parity", "preprocessing", "runtimes", "saved_model", "tflite"]
