"""Images come in, each with its index."""

from selabel_tf.data.imbalance import imbalanced
from selabel_tf.data.sources import Source, digits, from_arrays, from_folder, from_tfds

__all__ = ["Source", "digits", "from_arrays", "from_folder", "from_tfds", "imbalanced"]
