"""The real program, in processes of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from selabel_tf.config import Augment, Data, Evaluation, Label, Model
from selabel_tf.training import distribution, experiment

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}

# One process, many calls: starting TensorFlow takes longer than what is tested. "!" before a call: it is interrupted in
# its third epoch.
CALLS = """
import sys
from tools import finetune, fitting
from absl import flags

usual = fitting.Narrator.on_train_batch_end

def interrupting(self, batch, logs=None):
    usual(self, batch, logs)
    if self.before + batch + 1 > 2 * self.params["steps"]:
        raise KeyboardInterrupt

for line in sys.stdin.read().splitlines():
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    flags.FLAGS(["finetune", *line.removeprefix("!").split()])
    fitting.Narrator.on_train_batch_end = interrupting if line[0] == "!" else usual
    print("CALL", line)
    try:
        finetune.main(None)
    except (ValueError, KeyboardInterrupt) as error:
        print("ERROR", type(error).__name__, error)
"""

SHORT = "--epochs=4 --min_steps=0 --batch_size=13 --learning_rate=0.03 --l2=0.001 --seed=3"
RANDOM = "--weights=random --schedule=steps --epochs=1 --min_steps=5 --augment=flip"
FROZEN = "--layers=classifier --crops=10 --epochs=1 --min_steps=0 --batch_norm=inference --save_every=5 --devices=cpu"
VOC = "--layers=3 --epochs=3 --min_steps=0 --batch_size=14 --crops=10"
OTHER = "--layers=2 --epochs=1 --min_steps=0 --set=data.examples_per_class=11"
MISTAKES = {
    "--layers=conv9": "small_conv has no block 'conv9'",
    "--layers=6": "small_conv has 5 blocks",
    "--batch_size=51": "batch_size=51, but there are 50 images to train on",
    "--weights=random --batch_norm=inference": "random weights have none",
    "--devices=tpu": "No device 'tpu'",
    "--set=epochs=3": "is a setting of training",
    "--set=augment.size=17": "takes 16x16x1",
    "--augment=crop_jitter": "changes colours",
}


@pytest.fixture(scope="module")
def voc_run(small_config, small_voc, tmp_path_factory):
    """A run on a small PASCAL VOC: a network as it was drawn."""
    config = small_config(
        data=Data(source="tfds", name="voc/2007", split="train+validation", test_split="test", data_dir=str(small_voc)),
        augment=Augment(policy="crop_flip", size=16),
        model=Model(num_clusters=(3,)),
        label=Label(num_relabels=0),
        evaluation=Evaluation(knn=False, kmeans=False),
        epochs=0,
    )
    folder = tmp_path_factory.mktemp("voc") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
        experiment.run(config, folder)
    return folder


@pytest.fixture(scope="module")
def done(finished_run, voc_run, tmp_path_factory):
    """(folder of the run that was interrupted, that of one that was not, what each call printed)."""
    folder = tmp_path_factory.mktemp("runs")
    cut, through = (shutil.copytree(finished_run, folder / name) for name in ("cut", "through"))
    lines = [f"!--workdir={cut} {SHORT}", f"--workdir={cut} {SHORT}", f"--workdir={through} {SHORT}"]
    lines += [f"--workdir={cut} {line}" for line in (RANDOM, FROZEN, OTHER, *MISTAKES)]
    lines += [f"--workdir={voc_run} {VOC}"]
    program = [sys.executable, "-c", CALLS]
    options = {"cwd": ROOT, "capture_output": True, "text": True, "env": ENVIRONMENT, "timeout": 600}
    process = subprocess.run(program, input="\n".join(lines), **options)
    assert process.returncode == 0, process.stderr
    printed = process.stdout.split("CALL ")[1:]
    assert len(printed) == len(lines)
    return cut, through, printed


def result(folder, name):
    return json.loads((folder / "evaluation" / f"{name}.json").read_text())


def test_one_that_was_interrupted_ends_in_the_same_bits_as_one_that_ran_through(done):
    cut, through, printed = done
    assert "ERROR KeyboardInterrupt" in printed[0] and "Going on" not in printed[0]
    assert "Going on with an unfinished fine-tuning, 2 done." in printed[1]
    assert "Going on" not in printed[2]
    networks = [keras.models.load_model(folder / "evaluation" / "finetune_all.keras") for folder in (cut, through)]
    for here, there in zip(*(network.get_weights() for network in networks), strict=True):
        np.testing.assert_array_equal(here, there)
    assert result(cut, "finetune_all")["rows"] == result(through, "finetune_all")["rows"]
    assert not list((cut / "evaluation").glob("*.state"))


def test_it_ends_with_a_table_a_result_and_a_network(done):
    _, through, printed = done
    lines = printed[2].strip().splitlines()[1:]
    assert lines[0].startswith(
        "50 images of 10 classes to train on, tested on 10 images held out of the training set, seed 3"
    )
    assert lines[1] == "trained weights, training all layers: 4 epochs of batch 13, augmented by digits"
    assert re.search(r"^fine-tuning +100% 12/12 .*loss .*top1", printed[2], re.MULTILINE)
    assert re.search(r"^50 +\d\.\d{3} +\d\.\d{3}$", printed[2], re.MULTILINE)
    assert f"{through}/evaluation/finetune_all.json" in lines[-3]
    assert lines[-2] == f"The fine-tuned network: {through}/evaluation/finetune_all.keras"
    assert lines[-1].startswith("Next: ")
    found = result(through, "finetune_all")
    assert found["tool"] == "finetune" and found["data"]["own"] and found["model"]["epoch"] == 3
    chosen = {"weights": "trained", "layers": "all", "batch_norm": "training", "schedule": "cosine", "epochs": 4}
    chosen |= {"batch_size": 13, "learning_rate": 0.03, "l2": 0.001, "seed": 3, "augment": "digits", "crops": 1}
    assert {name: found["settings"][name] for name in chosen} == chosen
    assert found["settings"]["labelled"] == 50 and found["settings"]["class_names"] == list("0123456789")
    assert 0 <= found["rows"][0]["top1"] <= found["rows"][0]["top5"] <= 1


def test_the_network_takes_images_and_gives_scores(done):
    network = keras.models.load_model(done[1] / "evaluation" / "finetune_all.keras")
    assert network.input_shape == (None, 16, 16, 1) and network.output_shape == (None, 10)


def test_options(done):
    cut, _, printed = done
    random, frozen, other = printed[3:6]
    assert "random weights, training all layers: 5 epochs (for --min_steps=5) of batch 50, augmented by flip" in random
    assert "Fine-tuning, random weights, training all layers" in random and "tools.semi_supervised" in random
    settings = result(cut, "finetune_all_random")["settings"]
    assert (settings["weights"], settings["schedule"], settings["min_steps"]) == ("random", "steps", 5)
    assert "trained weights, training the classifier alone: 1 epoch of batch 50" in frozen and "10 crops" in frozen
    assert result(cut, "finetune_classifier")["settings"]["crops"] == 10
    kernels = [
        keras.models.load_model(cut / path).get_layer("conv5").kernel.numpy()
        for path in ("backbone.keras", "evaluation/finetune_classifier.keras", "evaluation/finetune_all.keras")
    ]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert (kernels[0] != kernels[2]).any()
    assert "90 images of 10 classes" in other
    assert not result(cut, "finetune_2-digits")["data"]["own"]


def test_several_classes_for_each_image_are_judged_by_average_precision(done, voc_run):
    printed = done[2][-1]
    assert "42 images of 5 classes to train on, tested on 29 images of voc/2007/test" in printed
    assert "trained weights, training the last 3 blocks: 3 epochs of batch 14, augmented by crop_flip" in printed
    assert re.search(r"^class +positives +ignored +AP 11-point +AP all-points +AP plain$", printed, re.MULTILINE)
    for name in ("mean", "aeroplane", "bicycle", "bird"):
        assert re.search(rf"^{name} +\d+ +\d+ +\d\.\d{{3}} +\d\.\d{{3}} +\d\.\d{{3}}$", printed, re.MULTILINE)
    assert re.search(r"^boat +0 +[1-9]\d* +- +- +-$", printed, re.MULTILINE)
    assert (
        "10 crops; tested on 29 images of voc/2007/test. No test image shows boat, bottle: not in the mean." in printed
    )
    rows = result(voc_run, "finetune_3")["rows"]
    assert [row["class"] for row in rows] == ["mean", "aeroplane", "bicycle", "bird", "boat", "bottle"]
    assert rows[0]["ap11"] == pytest.approx(np.mean([row["ap11"] for row in rows[1:4]]))
    assert all(row["ap11"] is None for row in rows[4:])


def test_mistakes_are_explained(done):
    for (line, words), printed in zip(MISTAKES.items(), done[2][6:-1], strict=True):
        assert "ERROR ValueError" in printed and words in printed, line
    names = ("all", "all_random", "classifier", "2-digits")  # nothing but what the calls without a mistake have left
    left = {f"finetune_{name}{ending}" for name in names for ending in (".json", ".keras")}
    assert {path.name for path in (done[0] / "evaluation").iterdir()} == left


def test_help_explains_every_flag():
    command = [sys.executable, "-m", "tools.finetune", "--help"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=ENVIRONMENT, timeout=600).stdout
    flags = (
        "weights layers batch_norm schedule epochs min_steps batch_size learning_rate l2 augment crops save_every "
        "devices seed set workdir"
    )
    for word in (*(f"--{flag}" for flag in flags.split()), "voc/2007", "11-point", "difficult"):
        assert word in output
