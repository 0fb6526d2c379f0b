import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def benchmark(python, tmp_path_factory):
    """(what was printed, the JSON) of the smallest benchmark."""
    path = tmp_path_factory.mktemp("speed") / "speed.json"
    done = python(
        "-m", "tools.benchmark_training", "--networks=tiny", "--steps=3", "--turns=2", "--threads=1", f"--output={path}"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(path.read_text())


def test_every_part_of_training_is_measured_in_turns(benchmark):
    printed, figures = benchmark
    (result,) = figures["results"]
    assert {len(turns) for turns in result["seconds_per_turn"].values()} == {2}
    parts = ["supervised Keras fit", "self-labelling step", "input pipeline", "self-labelling fit", "plain inference"]
    parts += ["label pass: features", "label pass: solves and rounding"]
    assert sorted(result["seconds_per_turn"]) == sorted(parts)
    assert all(
        clock > 0 and processor > 0 for turns in result["seconds_per_turn"].values() for clock, processor in turns
    )
    assert figures["command"].endswith("--networks=tiny --steps=3 --turns=2 --threads=1")
    assert result["turn"] == 3
    assert all(part in printed for part in parts)


def test_ratios_are_medians_over_turns_of_the_clock_and_of_the_processor(benchmark):
    printed, figures = benchmark
    (result,) = figures["results"]
    seconds = result["seconds_per_turn"]
    for kind, name in enumerate(("clock", "processor")):
        rates = [
            step[kind] / fit[kind]
            for step, fit in zip(seconds["self-labelling step"], seconds["self-labelling fit"], strict=True)
        ]
        assert result[name]["fit_rate_over_step_rate"] == pytest.approx(sum(rates) / 2)
        passes = zip(seconds["label pass: features"], seconds["plain inference"], strict=True)
        found = [features[kind] / inference[kind] for features, inference in passes]
        assert result[name]["features_over_inference"] == pytest.approx(sum(found) / 2)
    assert f"fit rate over step rate: {result['clock']['fit_rate_over_step_rate']:.3f} by the clock" in printed


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_its_step_is_left_out_in_so_many_words(benchmark):
    printed, figures = benchmark
    assert "PyTorch is not installed, so its step is left out. To have it:  pip install -e .[torch]" in printed
    assert "step_over_best_torch_step" not in figures["results"][0]["clock"]


def test_torchs_network_has_as_many_parameters_as_ours():
    pytest.importorskip("torch")
    from selabel_tf.models import backbone
    from tools import torch_step

    ours = backbone("resnet18_cifar", (32, 32, 3), width=4)
    theirs = torch_step.backbone(4)
    assert sum(p.numel() for p in theirs.parameters()) == sum(w.value.numpy().size for w in ours.trainable_weights)


def test_torchs_step_is_timed_in_a_process_of_its_own(python):
    pytest.importorskip("torch")
    options = {"width": 4, "size": 32, "batch_size": 5, "heads": 2, "clusters": 3, "turn": 2, "threads": 1}
    done = python("-m", "tools.torch_step", json.dumps(options | {"channels_last": True}), stdin="\n\n\n")
    turns = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(turns) == 3 and all(clock > 0 and processor > 0 for clock, processor in turns)


def test_a_torch_that_does_not_start_is_said_and_not_waited_for():
    code = """
import sys
from tools import benchmark_training as benchmark
benchmark.flags.FLAGS(["benchmark"])
sys.executable = "false"
turn = benchmark.torch_turns(benchmark.NETWORKS["tiny"], 3, True)
try:
    turn()
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "PyTorch's process ended, for the reason above. Mend that, or uninstall torch.\n"


def test_an_unknown_network_is_answered_with_those_there_are(python):
    done = python("-m", "tools.benchmark_training", "--networks=resnet")
    assert done.returncode == 1
    assert "Unknown network 'resnet'. Available: cifar10_cpu, alexnet_64, alexnet_224, tiny." in done.stderr
