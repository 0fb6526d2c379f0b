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
