"""Which devices train, and whether the same command gives the same bits."""

import keras
import tensorflow as tf

from ..labelling.relabel import reach_all


def strategy(devices: str | None = None) -> tf.distribute.Strategy:
    """The strategy under whose scope the model is to be made.

    Args:
      devices: a comma-separated list such as "gpu:0,gpu:1" or "cpu" (the number defaults to 0). None or "":
        all visible GPUs, or TensorFlow's own choice of a device where there is at most one.
    """
    chosen = _chosen(devices) if devices else _visible("GPU")
    if len(chosen) > 1:
        return tf.distribute.MirroredStrategy(chosen)
    if devices:
        return tf.distribute.OneDeviceStrategy(chosen[0])
    return tf.distribute.get_strategy()


def make_deterministic_on_cpu(seed: int) -> None:
    """Seeds Python, NumPy and Keras; where there is no GPU, every op also gives the same bits in every run.

    On GPU determinism is left off: it costs much, and some ops have no deterministic kernel there.
    """
    keras.utils.set_random_seed(seed)
    if not _visible("GPU"):
        tf.config.experimental.enable_op_determinism()


def check_batch(batch_size: int, replicas: int, num_examples: int) -> None:
    """Raises ValueError unless every batch, the last one included, has something for every replica."""
    if batch_size % replicas:
        raise ValueError(
            f"batch_size={batch_size} does not divide over {replicas} replicas. "
            f"Use a multiple of {replicas}, e.g. {(batch_size // replicas + 1) * replicas}."
        )
    check_last_batch(batch_size, replicas, num_examples)


def check_last_batch(batch_size: int, replicas: int, num_examples: int) -> None:
    """Raises ValueError if the last batch leaves a replica without an image."""
    if not reach_all(batch_size, num_examples, replicas):  # BatchNorm over no image is NaN
        sizes = range(replicas, num_examples + replicas, replicas)
        fitting = [size for size in sizes if reach_all(size, num_examples, replicas)]
        nearest = min(fitting, key=lambda size: (abs(size - batch_size), -size), default=None)
        remedy = f"another batch size, e.g. {nearest}" if fitting else "fewer replicas"
        raise ValueError(
            f"With batch_size={batch_size} the last batch of {num_examples} examples has "
            f"{num_examples % batch_size}, too few for {replicas} replicas. Use {remedy}."
        )


def _visible(kind=None):
    """Names such as "GPU:0" of the devices that TensorFlow would use."""
    devices = tf.config.list_logical_devices(kind)
    return [device.name.removeprefix("/device:") for device in devices]


def _chosen(devices):
    """ "gpu:0, cpu" -> ["GPU:0", "CPU:0"], each of them visible and named once."""
    visible = _visible()
    chosen = []
    for text in devices.split(","):
        name = text.strip().upper()
        name = name if ":" in name else f"{name}:0"
        if name not in visible:
            shown = ", ".join(device.lower() for device in visible)
            raise ValueError(f"No device {text.strip()!r} in devices={devices!r}. Visible here: {shown}.")
        if name in chosen:
            raise ValueError(f"devices={devices!r} names {name.lower()} twice. Name each device once.")
        chosen.append(name)
    return chosen
