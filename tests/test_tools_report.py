"""The real program, in processes of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def report(*arguments):
    command = [sys.executable, "-m", "tools.report", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=600)


@pytest.fixture(scope="module")
def compared(tmp_path_factory, finished_run):
    """(folder with the copies a and b of a run, what the program said)."""
    root = tmp_path_factory.mktemp("compared")
    for name in "ab":
        shutil.copytree(finished_run, root / name)
    return root, report(root / "a", root / "b", "--projector")


def test_two_runs_give_a_page_beside_the_first_and_say_what_is_missing(compared):
    root, done = compared
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    page = (root / "a" / "compared-with-b.html").read_text()
    assert 'id="r1-training-labels-1"' in page and "Self-labelling: a and b" in page
    lines = done.stdout.splitlines()
    assert any(line.startswith("looking at digits") and "100% 60/60" in line for line in lines)
    assert any(line.startswith("Note: There is no test split") for line in lines)
    assert any(line.startswith(f"Report: {root}/a/compared-with-b.html (") for line in lines)
    assert lines[-1] == f"Open {root}/a/compared-with-b.html in a browser by double click."


def test_charts_numbers_and_projector_files_are_beside_each_run(compared):
    root, done = compared
    for name in "ab":
        assert {"loss.png", "loss.csv", "clusters.csv", "map.csv"} <= {
            p.name for p in (root / name / "report").iterdir()
        }
        assert (root / name / "projector" / "projector_config.pbtxt").is_file()
    assert f"tensorboard --logdir {root}/b/projector" in done.stdout


def test_without_a_run_folder_the_program_says_what_it_needs(tmp_path):
    done = report("--nofigures", f"--output={tmp_path / 'page.html'}")
    assert done.returncode == 1
    assert "There are 0 run folders, expected one, or two to compare" in done.stderr
    assert "Traceback" not in done.stderr
