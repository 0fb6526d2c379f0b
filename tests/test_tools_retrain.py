"""The real program, in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from selabel_tf.export import labels as label_files

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("data.examples_per_class=6", "model.num_clusters=5,7", "evaluation.knn_k=5", "evaluation.kmeans=false")
SMALL += ("epochs=2", "batch_size=23", "model.objectives=labels,rotation")


def retrain(*arguments):
    """(exit code, standard output, standard error) of tools.retrain."""
    command = [sys.executable, "-m", "tools.retrain", "--config=configs/digits.py", *arguments]
    command += [f"--set={assignment}" for assignment in SMALL]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=600)
    return done.returncode, done.stdout, done.stderr


def test_a_network_is_trained_on_one_head_of_a_finished_run(tmp_path, finished_run):
    folder = tmp_path / "run"
    code, output, errors = retrain(f"--labels={finished_run}", f"--workdir={folder}", "--heads=1")
    assert (code, errors) == (0, "")
    assert len([line for line in output.splitlines() if line.startswith("labels ")]) == 1
    assert f"{folder}/report.html" in output
    ours, theirs = (label_files.read(run / "labels.csv") for run in (folder, finished_run))
    np.testing.assert_array_equal(ours.labels[:, 0], theirs.labels[:, 1])
    assert ours.num_clusters == (7,)
    assert (folder / "given_labels.csv").is_file()


def test_a_mistake_is_one_message_and_nothing_is_written(tmp_path, finished_run):
    code, _, errors = retrain(f"--labels={finished_run}", f"--workdir={tmp_path / 'run'}", "--heads=0,x")
    assert code == 1
    assert "--heads=0,x: expected numbers of heads, e.g. 0,3." in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run").exists()
