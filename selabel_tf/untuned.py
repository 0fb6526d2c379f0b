"""Datasets without the thread by which tf.data tunes them.

That thread looks after 10, 20, 40, ... ms, and the end of an iteration waits for it. A wake-up that is lost, as often
happens, costs all of its sleep: an epoch of 1.4 s took 2.6 s, label passes of about 50 s took 85 s. What it would have
tuned is given instead: as many parallel calls as there are threads, and buffers of a fixed size.

Over several replicas TensorFlow makes datasets of its own for the devices, which no option reaches: there the end of an
iteration still waits, a minute at most.
"""

import tensorflow as tf


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same elements; an iteration ends when the last of them was taken."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
