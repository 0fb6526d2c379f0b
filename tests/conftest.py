"""Two logical CPU devices for every test process, set before TensorFlow touches a device."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the tools do
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@pytest.fixture(scope="session")
def two_replicas():
    """One strategy for a whole process: two MirroredStrategy objects mix up each other's collectives."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
