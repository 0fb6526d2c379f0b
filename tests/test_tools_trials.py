"""The real program, in processes of its own."""

import json
import shutil
from dataclasses import replace

import pytest

from selabel_tf import config as configs
from selabel_tf.evaluation import trial_tables

PLACE = "# Title\n<!-- trials: rows -->\n<!-- end of trials -->\n"


@pytest.fixture
def folder(finished_run, tmp_path):
    """With two finished runs of configs/digits.py and a text."""
    for seed in (0, 1):
        shutil.copytree(finished_run, tmp_path / f"s{seed}")
        config = replace(configs.read(finished_run / "config.json"), name="digits", seed=seed)
        (tmp_path / f"s{seed}" / "config.json").write_text(configs.to_json(config))
    (tmp_path / "README.md").write_text(PLACE)
    return tmp_path


def record(python, folder, *arguments):
    flags = [f"--results={folder / 'trials.json'}", f"--texts={folder / 'README.md'}", "--commit=abc1234"]
    return python("-m", "tools.trials", *arguments, *flags)


def test_runs_are_recorded_and_the_text_shows_them(python, folder):
    done = record(python, folder, folder / "s0", folder / "s1", "--row=Digits", "--row=more: too", "--machine=a laptop")
    assert done.returncode == 0, done.stderr
    content = json.loads((folder / "trials.json").read_text())
    kept = content["trials"]
    assert [(t["name"], t["rows"], t["seed"], t["commit"], t["machine"]) for t in kept] == [
        ("s0", ["Digits", "more: too"], 0, "abc1234", "a laptop"),
        ("s1", ["Digits", "more: too"], 1, "abc1234", "a laptop"),
    ]
    text = (folder / "README.md").read_text()
    assert text == trial_tables.renewed(PLACE, kept, "README.md")
    assert "| Digits | 60 | 3 | 0, 1 |" in text
    assert done.stdout.count("has no linear probe") == 2
    assert f"2 trials in {folder / 'trials.json'}; tables renewed in {folder / 'README.md'}." in done.stdout

    (folder / "README.md").write_text(PLACE)
    assert record(python, folder).returncode == 0  # the table alone
    assert (folder / "README.md").read_text() == text
    assert json.loads((folder / "trials.json").read_text()) == content


def test_nothing_is_written_when_something_is_refused(python, folder):
    (folder / "README.md").write_text("no place")
    done = record(python, folder, folder / "s0")
    assert done.returncode == 1
    assert "has no place for the trials" in done.stderr
    assert not (folder / "trials.json").exists()
    assert (folder / "README.md").read_text() == "no place"


def test_a_run_that_was_given_up_is_recorded_as_such(python, folder):
    (folder / "s1" / "results.json").unlink()
    done = record(python, folder, folder / "s1")
    assert done.returncode == 1 and "--stopped" in done.stderr
    done = record(python, folder, folder / "s1", "--stopped")
    assert done.returncode == 0, done.stderr
    (trial,) = json.loads((folder / "trials.json").read_text())["trials"]
    assert (trial["name"], trial["stopped"], trial["knn"]) == ("s1", 3, None)
    assert "has no linear probe" not in done.stdout
