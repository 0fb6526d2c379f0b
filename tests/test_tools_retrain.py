"""The real program, in processes of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np

from selabel_tf.export import labels as label_files

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("data.examples_per_class=6", "model.num_clusters=5,7", "evaluation.knn_k=5", "evaluation.kmeans=false")
SMALL += ("epochs=2", "batch_size=23", "model.objectives=labels,rotation")


def start(*arguments):
    """A process of tools.retrain."""
    command = [sys.executable, "-m", "tools.retrain", "--config=configs/digits.py", *arguments]
    command += [f"--set={assignment}" for assignment in SMALL]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def retrain(*arguments):
    """(exit code, standard output, standard error) of tools.retrain."""
    process = start(*arguments)
    output, errors = process.communicate(timeout=600)
    return process.returncode, output, errors


def test_a_network_is_trained_on_one_head_of_a_finished_run(tmp_path, finished_run):
    folder = tmp_path / "run"
    code, output, errors = retrain(f"--labels={finished_run}", f"--workdir={folder}", "--heads=1")
    assert (code, errors) == (0, "")
    assert len([line for line in output.splitlines() if line.startswith("labels ")]) == 1
    assert f"{folder}/report.html" in output
    assert output.splitlines()[-1] == f"Next: python -m tools.compare {finished_run} {folder}"
    assert re.search(r"^training +100% 6/6 .*loss .*rotation_accuracy", output, re.MULTILINE)
    ours, theirs = (label_files.read(run / "labels.csv") for run in (folder, finished_run))
    np.testing.assert_array_equal(ours.labels[:, 0], theirs.labels[:, 1])
    assert ours.num_clusters == (7,)
    assert (folder / "given_labels.csv").is_file()


def test_two_runs_end_in_the_same_bits_though_one_of_them_was_stopped_and_went_on(tmp_path, finished_run):
    through, cut = tmp_path / "through", tmp_path / "cut"
    more = ("--set=augment.more=one_of", "--set=checkpoint_steps=1")  # every random choice that there is
    assert retrain(f"--labels={finished_run}", f"--workdir={through}", *more)[0] == 0
    process = start(f"--labels={finished_run}", f"--workdir={cut}", *more)
    for line in process.stdout:
        if line.startswith("training "):
            process.send_signal(signal.SIGTERM)
            break
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 75
    assert f"python -m tools.retrain --config=configs/digits.py --labels={finished_run} --workdir={cut}" in errors
    assert not (cut / "results.json").exists()
    assert retrain(f"--labels={finished_run}", f"--workdir={cut}", *more)[0] == 0
    ours, theirs = (keras.models.load_model(run / "backbone.keras").get_weights() for run in (through, cut))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    numbers = [json.loads((run / "results.json").read_text())["numbers"] for run in (through, cut)]
    assert numbers[0] == numbers[1]


def test_labels_of_other_images_are_refused_and_nothing_is_written(tmp_path, finished_run):
    options = (f"--labels={finished_run}", f"--workdir={tmp_path / 'run'}", "--set=data.max_bad_share=0.5")
    code, _, errors = retrain(*options, "--set=data.imbalance=light")
    assert code == 1 and "another dataset" in errors and "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_one_message_and_nothing_is_written(tmp_path, finished_run):
    code, _, errors = retrain(f"--labels={finished_run}", f"--workdir={tmp_path / 'run'}", "--heads=0,x")
    assert code == 1
    assert "--heads=0,x: expected numbers of heads, e.g. 0,3." in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run").exists()
