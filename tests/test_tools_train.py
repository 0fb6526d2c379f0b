"""The real program, in processes of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from selabel_tf.export import labels as label_files
from selabel_tf.training.run_log import TIMING

ROOT = Path(__file__).resolve().parents[1]
SMALL = (
    "data.examples_per_class=6",
    "model.num_clusters=5,7",
    "label.num_relabels=3",
    "evaluation.knn_k=5",
    "epochs=2",
    "batch_size=23",
)


@pytest.fixture(scope="module")
def train(python):
    """(exit code, standard output, standard error) of tools.train."""

    def program(*arguments, check=True):
        done = python("-m", "tools.train", *arguments)
        if check:
            assert done.returncode == 0, done.stderr
        return done.returncode, done.stdout, done.stderr

    return program


def small(folder, *more):
    flags = [f"--set={assignment}" for assignment in (*SMALL, *more)]
    return ["--config=configs/digits.py", f"--workdir={folder}", *flags]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(folder, exit code, standard output, standard error) of a run in a process begun from nothing."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    command = [sys.executable, "-m", "tools.train", *small(folder)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder, done.returncode, done.stdout, done.stderr


def test_a_run_ends_with_tables_and_says_where_the_results_are(finished):
    folder, _, output, errors = finished
    lines = output.strip().splitlines()
    assert len([line for line in lines if line.startswith("labels ")]) == 3
    assert "Clusters against the true classes" in lines
    assert "Weighted nearest neighbours" in lines
    assert f"{folder}/report.html" in lines[-2]
    assert "tensorboard --logdir" in lines[-1]
    assert errors == ""  # none of TensorFlow's chatter


def test_off_a_terminal_progress_is_plain_lines(finished):
    output = finished[2]
    assert "\r" not in output
    assert "\x1b" not in output
    assert re.search(r"^training +100% 6/6", output, re.MULTILINE)


def test_the_same_command_again_says_that_the_run_is_finished(train, finished):
    _, output, _ = train(*small(finished[0]))
    assert output == f"This run is finished. Its results are in {finished[0]}/report.html.\n"


def test_without_a_page_the_results_are_the_numbers_and_the_next_command_draws_it(train, tmp_path):
    command = small(tmp_path, "evaluation.report=false", "evaluation.kmeans=false")
    _, output, _ = train(*command)
    assert f"Results: {tmp_path}/results.json" in output
    assert f"draw its page with  python -m tools.report {tmp_path}, or" in output.splitlines()[-1]
    _, output, _ = train(*command)
    assert output == f"This run is finished. Its results are in {tmp_path}/results.json.\n"


def test_the_same_command_gives_the_same_bits(train, finished, tmp_path):
    train(*small(tmp_path / "again"))
    ours, theirs = (label_files.read(folder / "labels.csv") for folder in (finished[0], tmp_path / "again"))
    assert (ours.labels == theirs.labels).all()
    metrics = [
        re.sub(rf'"({"|".join(TIMING)})": [^,}}]+', "", (folder / "metrics.jsonl").read_text())
        for folder in (finished[0], tmp_path / "again")
    ]
    assert metrics[0] == metrics[1]


def test_a_mistake_is_one_message_without_a_traceback(train, tmp_path):
    code, _, errors = train(*small(tmp_path / "run", "model.backbon=resnet18"), check=False)
    assert code == 1
    assert "Did you mean 'model.backbone'?" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run").exists()


def test_help_explains_every_flag_and_the_folder(train):
    _, output, _ = train("--help", check=False)
    for word in ("--config", "--workdir", "--set", "--devices", "report.html", "resumes"):
        assert word in output
