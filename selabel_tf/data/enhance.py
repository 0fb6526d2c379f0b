"""Equalize, autocontrast and sharpening of image batches: the paper's "+ more aug.".

Images are [B, h, w, c] in [0, 1], c = 1 or 3; every image is changed by itself, whatever batch it is in. The pixels are
those of Keras' layers Equalization, AutoContrast and RandomSharpness, whose random numbers are left out: whoever calls
brings them along. Where that matters, the layers are held to what Pillow's ImageOps and ImageEnhance do:

    equalize      each channel by its cumulative histogram of 256 values. Keras counts a whole batch together, so it is
                  given one image at a time. It maps the lowest value of a channel to 0 and the highest to 1; Pillow
                  rounds its table otherwise.
    autocontrast  each channel stretched to [0, 1], as Pillow does; a channel of one value stays.
    sharpness     x + (1 - factor) (smooth(x) - x): 0 smooth, 1 the image itself, 2 sharper, as Pillow's factor. Keras
                  smooths against black beyond the edges; here the outermost pixels stay as they are, as in Pillow.
"""

import functools

import keras
import tensorflow as tf

OPERATIONS = 3


def equalize(images):
    def one(image):
        return _layers()["equalize"].transform_images(image, None)

    return tf.map_fn(one, images, fn_output_signature=tf.TensorSpec(images.shape[1:], tf.float32))


def autocontrast(images):
    return _layers()["autocontrast"].transform_images(images)


def sharpness(images, factor):
    """factor [B]: below 1 smoother, above 1 sharper."""
    changed = _layers()["sharpness"].transform_images(images, {"factor": factor / 2})
    inside = tf.pad(tf.ones([tf.shape(images)[1] - 2, tf.shape(images)[2] - 2], tf.bool), [[1, 1], [1, 1]])
    return tf.where(inside[:, :, None], changed, images)


def one_of(images, choice, factor):
    """Equalize, autocontrast or sharpness, by choice int32 [B] in 0..2; factor [B] of sharpness."""
    changed = tf.where((choice == 1)[:, None, None, None], autocontrast(images), sharpness(images, factor))
    rows = tf.where(choice == 0)  # [n, 1]: the one that is dear, image by image, is for those only that want it
    return tf.tensor_scatter_nd_update(changed, rows, equalize(tf.gather_nd(images, rows)))


@functools.cache
def _layers():
    """name -> the Keras layer."""
    options = {"value_range": (0, 1), "dtype": "float32"}
    with tf.init_scope():  # a layer of random numbers makes a variable, even where it draws none
        return {
            "equalize": keras.layers.Equalization(**options),
            "autocontrast": keras.layers.AutoContrast(**options),
            "sharpness": keras.layers.RandomSharpness(1.0, seed=0, **options),
        }
