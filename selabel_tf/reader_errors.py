"""The errors of image readers, which tf.data wraps in pages of its own, as what they were."""

import contextlib
import re

import tensorflow as tf

WRAPPED = (tf.errors.InvalidArgumentError, tf.errors.UnknownError, tf.errors.NotFoundError)


@contextlib.contextmanager
def own_words():
    """An error of the readers, such as the name of a damaged or missing image, without the pages of tf.data."""
    try:
        yield
    except WRAPPED as error:
        own = re.search(r"^(ValueError|\w*NotFoundError|PermissionError|OSError): (.+)$", str(error), re.MULTILINE)
        if own is None:
            raise
        kind = ValueError if own[1] == "ValueError" else OSError
        raise kind(own[2]) from error
