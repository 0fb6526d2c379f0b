"""The real program, in a process of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image as pictures

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}

# "!" before a call: it is interrupted as soon as it trains from scratch.
CALLS = """
import sys
from tools import fitting, semi_supervised
from absl import flags

usual = fitting.Narrator.on_train_batch_end

def interrupting(self, batch, logs=None):
    usual(self, batch, logs)
    if self.label.startswith("from scratch"):
        raise KeyboardInterrupt

for line in sys.stdin.read().splitlines():
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    flags.FLAGS(["semi_supervised", *line.removeprefix("!").split()])
    fitting.Narrator.on_train_batch_end = interrupting if line[0] == "!" else usual
    print("CALL", line)
    try:
        semi_supervised.main(None)
    except (ValueError, KeyboardInterrupt) as error:
        print("ERROR", type(error).__name__, error)
print("CALL help", semi_supervised.__doc__, flags.FLAGS.get_help())
"""

SHORT = "--set=data.examples_per_class=20 --fractions=0.125,0.5 --epochs=1 --min_steps=2 --scratch_learning_rate=0.2"
PROBE = "--fractions=0.5,1 --seeds=3,0 --methods=probe --probe_l2=0.01"
MISTAKES = {
    "--fractions=0.01": "A share of 0.01 leaves no image of class",
    "--fractions=1.5": "fraction=1.5 is no share of the images",
    "--fractions=ten": "--fractions=ten must be numbers, e.g. 0.01",
    "--fractions=0.5,0.5": "--fractions=0.5,0.5 must be numbers of 0 or more, each once",
    "--seeds=-1": "--seeds=-1 must be numbers of 0 or more",
    "--methods=probe,svm": "'svm' is unknown. Choose of probe, finetune, scratch",
    "--methods=": "--methods is empty",
    "--layers=conv9 --fractions=1 --methods=finetune": "small_conv has no block 'conv9'",
}


@pytest.fixture(scope="module")
def done(finished_run, tmp_path_factory):
    """(folder of the run, what each call printed)."""
    folder = shutil.copytree(finished_run, tmp_path_factory.mktemp("runs") / "run")
    lines = [f"!--workdir={folder} {SHORT}"]
    lines += [f"--workdir={folder} {line}" for line in (SHORT, PROBE, *MISTAKES)]
    program = [sys.executable, "-c", CALLS]
    options = {"cwd": ROOT, "capture_output": True, "text": True, "env": ENVIRONMENT, "timeout": 600}
    process = subprocess.run(program, input="\n".join(lines), **options)
    assert process.returncode == 0, process.stderr
    printed = process.stdout.split("CALL ")[1:]
    assert len(printed) == len(lines) + 1
    return folder, printed


def test_a_measurement_that_was_interrupted_goes_on_with_what_is_missing(done):
    _, (first, second, *_) = done
    assert "ERROR KeyboardInterrupt" in first and "Going on" not in first
    assert "Going on: 2 measured before." in second
    assert re.search(r"^1 of 6: linear probe, 20 labelled images, seed 0: top-1 0\.\d{3}$", first, re.MULTILINE)
    both = re.compile(r"^2 of 6: fine-tuning, .*$", re.MULTILINE)
    assert both.search(first)[0] == both.search(second)[0]
    assert "fine-tuning, 0.125 labelled" not in second  # its bar is not drawn again


def test_it_ends_with_a_table_a_result_and_a_picture(done):
    folder, (_, printed, *_) = done
    assert "160 images of 10 classes, tested on 40 images held out" in printed
    for method in ("linear probe", "fine-tuning", "from scratch"):
        for labelled, share in ((20, "12.5%"), (80, "50%")):
            assert re.search(rf"^{method} +{labelled} +{share} +\d\.\d{{3}} +-$", printed, re.MULTILINE)
    path = folder / "evaluation" / "semi_supervised-digits.json"
    assert f"Results: {path}" in printed and printed.strip().splitlines()[-1].startswith("Next: ")
    result = json.loads(path.read_text())
    assert result["tool"] == "semi_supervised" and not result["data"]["own"]
    assert [(row["method"], row["labelled"]) for row in result["rows"]][:3] == [
        ("linear probe", 20),
        ("linear probe", 80),
        ("fine-tuning", 20),
    ]
    recipes = result["settings"]["recipes"]
    assert recipes["fine-tuning"]["learning_rate"] == 0.05 and recipes["from scratch"]["learning_rate"] == 0.2
    assert recipes["from scratch"]["weights"] == "random"
    assert len(result["settings"]["points"]) == 6
    picture = pictures.imread(path.with_suffix(".png"))
    assert picture.shape[:2] == (630, 960)
    assert {file.suffix for file in (folder / "evaluation").iterdir()} <= {".json", ".png"}


def test_several_seeds_give_a_mean_and_a_deviation(done):
    folder, printed = done
    assert "mean and deviation of 2 seeds" in printed[2]
    result = json.loads((folder / "evaluation" / "semi_supervised.json").read_text())
    assert result["data"]["own"]
    half, whole = result["rows"]
    assert (half["labelled"], half["seeds"], whole["labelled"]) == (20, 2, 50)
    values = [p["top1"] for p in result["settings"]["points"] if p["fraction"] == 0.5]
    assert half["top1"] == pytest.approx(np.mean(values)) and half["deviation"] == pytest.approx(np.std(values, ddof=1))
    assert {p["l2"] for p in result["settings"]["points"]} == {0.01}
    assert result["settings"]["seeds"] == [3, 0]
    assert whole["deviation"] == 0  # all images, whatever the seed


def test_mistakes_are_explained(done):
    for (line, words), printed in zip(MISTAKES.items(), done[1][3:-1], strict=True):
        assert "ERROR ValueError" in printed and words in printed, line


def test_help_explains_every_flag(done):
    flags = "fractions seeds methods probe_l2 scratch_learning_rate layers batch_norm schedule epochs min_steps augment"
    for word in (*(f"--{flag}" for flag in flags.split()), "same share of every class"):
        assert word in done[1][-1].replace("[no]", "")
