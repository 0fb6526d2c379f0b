"""Images come in, each with its index."""

from selabel_tf.data.image_header import BadImage
from selabel_tf.data.imbalance import imbalanced
from selabel_tf.data.inspection import inspect_folder, inspect_tfds
from selabel_tf.data.sources import Source, digits, from_arrays, from_folder, from_tfds

__all__ = [
    "BadImage",
    "Source",
    "digits",
    "from_arrays",
    "from_folder",
    "from_tfds",
    "imbalanced",
    "inspect_folder",
    "inspect_tfds",
]
