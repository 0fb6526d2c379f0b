"""Exported files as their users run them: each by the runtime of its format, and without this package.

    run = load("export/1", threads=1)
    run(images)["features"]                 images float32 [n, h, w, c] -> [n, D]

    python -P runtimes.py FOLDER THREADS H W C      prints seconds per image: TensorFlow fixes its threads when a
                                                    process starts, so each number of threads is timed in its own

This module imports nothing of ours, so that what it runs is proven to stand alone.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SECONDS = 1.0  # of measuring, after a warm-up
CALLS = (5, 200)  # fewest and most of them


def load(folder, threads=None):
    """A callable images -> dict of outputs, for the version folder of any format. threads: None for all cores.

    For TensorFlow's formats `threads` must be set before the process has done anything with TensorFlow.
    """
    folder = Path(folder)
    for file, loader in LOADERS.items():
        if (folder / file).is_file():
            return loader(folder / file, threads)
    raise ValueError(f"{folder} holds no export: none of {', '.join(LOADERS)} is in it. Give a version folder.")


def seconds_per_image(folder, image_shape, threads) -> float:
    """Median time of one call with one image (a fixed batch: with that, divided by it), in a process of its own."""
    command = [sys.executable, "-P", __file__, str(folder), str(threads), *map(str, image_shape)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{folder} does not run in a process of its own: {done.stderr.strip()[-2000:]}")
    return float(done.stdout.strip().splitlines()[-1])


def _saved_model(file, threads):
    import tensorflow as tf

    _limit(tf, threads)
    network = tf.saved_model.load(str(file.parent))
    signature = network.signatures["serving_default"]

    def run(images):
        return {name: value.numpy() for name, value in signature(images=tf.constant(images)).items()}

    run.network = network  # signatures hold their variables weakly
    return run


def _keras(file, threads):
    import tensorflow as tf

    _limit(tf, threads)
    import keras

    network = keras.models.load_model(file, compile=False, safe_mode=True)
    compiled = tf.function(lambda images: network(images, training=False), reduce_retracing=True)
    return lambda images: {"features": compiled(tf.constant(images)).numpy()}


def _tflite(file, threads):
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise ValueError("TFLite files are run by LiteRT, not installed here: pip install ai-edge-litert.") from None
    import os

    interpreter = Interpreter(str(file), num_threads=threads or os.cpu_count())
    shape = interpreter.get_input_details()[0]["shape_signature"].tolist()  # -1: any number of images
    runner = interpreter.get_signature_runner("serving_default")

    def run(images):
        if list(images.shape[1:]) != shape[1:]:
            raise ValueError(
                f"{file} takes images {shape[1:]}, got {list(images.shape[1:])}. Prepare them as model.json says."
            )
        if shape[0] == -1:
            return runner(images=images)
        return _in_blocks(lambda block: runner(images=block), images, shape[0])

    run.batch = None if shape[0] == -1 else shape[0]
    run.interpreter = interpreter
    return run


def _onnx(file, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if threads:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: {"features": session.run(None, {name: images})[0]}


LOADERS = {
    "saved_model.pb": _saved_model,
    "backbone.keras": _keras,
    "model.tflite": _tflite,
    "model.onnx": _onnx,
}


def _in_blocks(run, images, batch):
    """Any number of images through a file that takes `batch` at a time; the last block is filled up and cut."""
    blocks = []
    for start in range(0, len(images), batch):
        block = images[start : start + batch]
        filled = np.concatenate([block, np.repeat(block[-1:], batch - len(block), axis=0)])
        blocks.append({name: np.copy(value[: len(block)]) for name, value in run(filled).items()})
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _limit(tf, threads):
    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def _time(folder, threads, image_shape):
    run = load(folder, threads)
    batch = getattr(run, "batch", None) or 1
    images = np.random.default_rng(0).normal(size=(batch, *image_shape)).astype(np.float32)
    for _ in range(3):
        run(images)
    times = []
    while len(times) < CALLS[0] or (sum(times) < SECONDS and len(times) < CALLS[1]):
        start = time.perf_counter()
        run(images)
        times.append(time.perf_counter() - start)
    return statistics.median(times) / batch


if __name__ == "__main__":
    print(json.dumps(_time(sys.argv[1], int(sys.argv[2]), tuple(map(int, sys.argv[3:6])))))
