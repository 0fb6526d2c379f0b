"""The real program, in processes of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}


@pytest.fixture(scope="module")
def run(python):
    """(standard output, standard error) of the program."""

    def program(*arguments, check=True):
        done = python("-m", "tools.linear_probe", *arguments)
        if check:
            assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return program


@pytest.fixture(scope="module")
def folder(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("runs") / "run")


def result_of(folder, name="linear_probe"):
    return json.loads((folder / "evaluation" / f"{name}.json").read_text())


def test_a_killed_probe_goes_on_and_ends_with_a_table_and_a_result(run, folder):
    flags = [f"--workdir={folder}", "--layers=conv2_relu,flatten", "--max_features=600", "--epochs=150"]
    command = [sys.executable, "-m", "tools.linear_probe", *flags]
    state = folder / "evaluation" / "linear_probe_conv2_relu_flatten.state"  # no other probe comes in its way
    first = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    try:
        for _ in range(3000):
            if state.exists() or first.poll() is not None:
                break
            time.sleep(0.1)
        assert first.poll() is None  # it was in the middle of training
    finally:
        first.kill()
        first.wait()

    output, errors = run(*flags)
    lines = output.strip().splitlines()
    assert errors == ""
    assert re.search(r"^Going on with an unfinished probe, \d+ done\.$", output, re.MULTILINE)
    assert "50 images of 10 classes to train on, tested on 10 images held out of the training set, seed 0" in lines[0]
    assert "the network has seen them, without their classes" in lines[0]
    assert lines[1] == "Features: extracted once, augmentation off; the classifiers train on them."
    assert re.search(r"^training probes +100% 150/150 .*loss .*conv2_relu_top1", output, re.MULTILINE)
    assert re.search(r"^conv2_relu +576 +3x3 maxima of 8x8x64 +\d\.\d{3} +\d\.\d{3}$", output, re.MULTILINE)
    assert re.search(r"^flatten +512 +as it is +\d\.\d{3} +\d\.\d{3}$", output, re.MULTILINE)
    assert f"{folder}/evaluation/linear_probe_conv2_relu_flatten.json" in lines[-2]
    assert lines[-1].startswith(f"Next: python -m tools.knn --workdir={folder} --layers=conv2_relu,flatten ")
    assert not state.exists()
    assert not (folder / "evaluation" / "linear_probe.json").exists()  # which is of the network's features

    result = result_of(folder, "linear_probe_conv2_relu_flatten")
    assert [row["layer"] for row in result["rows"]] == ["conv2_relu", "flatten"]
    assert all(0 <= row["top1"] <= row["top5"] <= 1 for row in result["rows"])
    settings = result["settings"]
    assert (settings["solver"], settings["schedule"], settings["crops"]) == ("sgd", "resnet", 1)
    assert (settings["epochs"], settings["drops"], settings["batch_size"]) == (150, [87, 132], 50)
    assert result["data"]["own"] and result["model"]["epoch"] == 3


# One process, many calls: starting TensorFlow takes longer than what is tested.
CALLS = """
import sys
from tools import linear_probe
from absl import flags

if "--little_memory" in sys.argv:
    linear_probe.available_memory = lambda: 1000
for line in sys.stdin.read().splitlines():
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    flags.FLAGS(["linear_probe", *line.split()])
    print("CALL", line)
    try:
        linear_probe.main(None)
    except ValueError as error:
        print("ERROR", error)
"""


@pytest.fixture(scope="module")
def calls(python):
    """What each of the calls printed, in one process."""

    def run(folder, lines, *arguments):
        text = "\n".join(f"--workdir={folder} {line}" for line in lines)
        done = python("-c", CALLS, *arguments, stdin=text)
        assert done.returncode == 0, done.stderr
        parts = done.stdout.split("CALL ")[1:]
        assert len(parts) == len(lines)
        return parts

    return run


def test_options(calls, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    exact, augmented, other = calls(
        tmp_path / "run",
        [
            "--solver=lbfgs --l2=0.01 --crops=10",
            "--augment=digits --epochs=2 --batch_size=11 --schedule=code --learning_rate=0.02 --l2=0.001 --seed=3",
            "--epochs=2 --set=data.examples_per_class=11",
        ],
    )
    assert re.search(r"flatten: converged in \d+ iterations", exact)
    assert "10 crops, lbfgs" in exact
    assert "Features: computed in every epoch from images augmented by digits." in augmented
    assert "An unfinished probe" not in augmented
    assert "Only 8 steps: probably too few." in augmented
    assert re.search(r"100% 8/8", augmented)  # 50 images: four batches of 11, the short one left out
    assert "held out of the training set, seed 3" in augmented
    assert "90 images of 10 classes" in other and "the network has seen them" not in other
    saved = json.loads((tmp_path / "run" / "evaluation" / "linear_probe.json").read_text())["settings"]
    chosen = {"schedule": "code", "batch_size": 11, "learning_rate": 0.02, "l2": 0.001, "seed": 3, "epochs": 2}
    assert {name: saved[name] for name in chosen} == chosen
    assert (tmp_path / "run" / "evaluation" / "linear_probe-digits.json").is_file()


def test_where_features_do_not_fit_into_memory_images_go_through_the_network(calls, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    descent, exact = calls(tmp_path / "run", ["--epochs=2", "--solver=lbfgs"], "--little_memory")
    assert "Features: computed in every epoch, augmentation off: at 0.0 GiB they do not fit into memory." in descent
    assert "ERROR The features of 50 images are 0.0 GiB, too much for the free memory." in exact


def test_mistakes_are_explained(calls, folder):
    cases = {
        "--layers=conv9": "small_conv has no layer 'conv9'. Did you mean",
        "--layers=alexnet": "pools conv1_relu to 9600 features, but the 16x16x32 map of this small_conv gives",
        "--layers=alexnet,conv1": "--layers=alexnet stands for all five layers",
        "--layers=conv1_relu,conv1_relu": "'conv1_relu' is named twice",
        "--layers=flatten --max_features=3": "Allow at least 512",
        "--batch_size=51": "batch_size=51, but there are 50 images to train on",
        "--solver=lbfgs --augment=digits": "--solver=lbfgs needs features that stay",
        "--solver=lbfgs --epochs=3": "--epochs=3 belongs to --solver=sgd",
        "--solver=lbfgs --schedule=code": "--schedule=code belongs to --solver=sgd",
        "--solver=lbfgs --l2=0": "l2=0.0 must be positive",
        "--set=augment.size=17": "takes 16x16x1",
        "--set=epochs=3": "is a setting of training",
    }
    for (line, words), printed in zip(cases.items(), calls(folder, cases), strict=True):
        assert "ERROR" in printed and words in printed, line


def test_help_explains_every_flag(run):
    output, _ = run("--help", check=False)
    flags = (
        "layers",
        "max_features",
        "solver",
        "schedule",
        "epochs",
        "batch_size",
        "learning_rate",
        "l2",
        "augment",
        "crops",
        "seed",
    )
    for word in (*(f"--{flag}" for flag in flags), "the paper's protocol", "held out"):
        assert word in output
