"""Two logical CPU devices in every test process, set before TensorFlow touches a device; a small run."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the tools do
os.environ.setdefault("MPLBACKEND", "Agg")

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from selabel_tf.config import Augment, Config, Data, Evaluation, Label, Model, Optimizer
from selabel_tf.training import distribution, experiment

ROOT = Path(__file__).resolve().parents[1]
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@pytest.fixture(scope="session")
def two_replicas():
    """One strategy for a whole process: two MirroredStrategy objects mix up each other's collectives."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.fixture(scope="session")
def small_config():
    """A function: changes -> Config of a run of 60 digits, two heads, three epochs of three steps."""

    def make(**changes):
        config = Config(
            name="small",
            data=Data(source="digits", examples_per_class=6),
            augment=Augment(policy="digits"),
            model=Model(backbone="small_conv", num_clusters=(5, 7)),
            label=Label(num_relabels=3, schedule="linear"),
            optimizer=Optimizer(learning_rate=0.05, drop_epochs=(2,)),
            evaluation=Evaluation(knn_k=5),
            epochs=3,
            batch_size=23,
        )
        return replace(config, **changes)

    return make


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, small_config):
    """The folder of a finished run of `small_config`, to be read only: what writes works on a shutil.copytree of it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:  # op determinism cannot be switched off again in a process
        patch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
        experiment.run(small_config(), folder)
    return folder


@pytest.fixture(scope="session")
def python():
    """A function: arguments -> subprocess.CompletedProcess of `python arguments` in the project's root.

    The process is forked from one that has TensorFlow imported (tests/warm_python.py). Programs that are to be
    interrupted, or whose start is what is tested, run by `subprocess`.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    server_environment = {**environment, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("warm_python.py")], env=server_environment, cwd=ROOT, **pipes
    )

    def run(*arguments, stdin=""):
        arguments = [str(argument) for argument in arguments]
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: Path(folder) / name for name in ("stdin", "stdout", "stderr")}
            paths["stdin"].write_text(stdin)
            paths["stdout"].touch(), paths["stderr"].touch()
            request = {"arguments": arguments, "cwd": str(ROOT), "environment": environment}
            server.stdin.write(json.dumps(request | {name: str(path) for name, path in paths.items()}) + "\n")
            server.stdin.flush()
            code = json.loads(server.stdout.readline())
            said = {name: paths[name].read_text() for name in ("stdout", "stderr")}
        return subprocess.CompletedProcess(arguments, code, **said)

    yield run
    server.stdin.close()
    server.wait()


@pytest.fixture(scope="session")
def small_voc(tmp_path_factory):
    """The data_dir of a prepared set voc/2007 in the format of TFDS, with five classes and images that tell them.

    Channel c of an image is bright where it shows class c, of aeroplane, bicycle, bird. Boats are always difficult, and
    bottles are in no test image. One image in each split shows nothing, and each image has a size of its own.
    """
    import numpy as np
    import tensorflow_datasets as tfds

    names = ["aeroplane", "bicycle", "bird", "boat", "bottle"]
    lists = tfds.features.Sequence(tfds.features.ClassLabel(names=names))
    thing = {
        "label": tfds.features.ClassLabel(names=names),
        "bbox": tfds.features.BBoxFeature(),
        "pose": tfds.features.ClassLabel(names=["frontal", "rear", "left", "right", "unspecified"]),
        "is_truncated": np.bool_,
        "is_difficult": np.bool_,
    }
    features = {
        "image": tfds.features.Image(),
        "image/filename": tfds.features.Text(),
        "objects": tfds.features.Sequence(thing),
        "labels": lists,
        "labels_no_difficult": lists,
    }
    rng = np.random.default_rng(0)

    def example(number, split):
        easy = [c for c in range(3) if number and rng.random() < 0.4] + [4] * (split != "test" and number % 5 == 1)
        difficult = [2] * (number % 4 == 2) + [3] * (number % 3 == 1)
        size = (int(rng.integers(17, 29)), int(rng.integers(17, 29)))
        pixels = rng.integers(0, 60, (*size, 3), np.uint8)
        pixels[..., [c for c in easy if c < 3]] += 150
        box = tfds.features.BBox(0.0, 0.0, 1.0, 0.5)
        things = [
            {"label": c, "bbox": box, "pose": "unspecified", "is_truncated": False, "is_difficult": hard}
            for kind, hard in ((easy, False), (difficult, True))
            for c in kind
        ]
        return {
            "image": pixels,
            "image/filename": f"{number:06d}.jpg",
            "objects": things,
            "labels": sorted({*easy, *difficult}),
            "labels_no_difficult": easy,
        }

    data_dir = tmp_path_factory.mktemp("tfds")
    folder = data_dir / "voc" / "2007" / "5.0.0"
    folder.mkdir(parents=True)
    identity = tfds.core.DatasetIdentity("voc", tfds.core.Version("5.0.0"), str(folder), "voc", config_name="2007")
    info = tfds.core.DatasetInfo(builder=identity, features=tfds.features.FeaturesDict(features))
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=7)
    writer.initialize_splits(["train", "validation", "test"])
    for split, count in {"train": 23, "validation": 19, "test": 29}.items():
        writer.add_examples({split: [example(number, split) for number in range(count)]})
    writer.close_all()
    return data_dir
