"""The doctor on a machine as it is, and on machines that lack something."""

import importlib.metadata
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from selabel_tf.config import Data, Evaluation, Label, Model
from selabel_tf.labelling import relabel, storage
from selabel_tf.training import doctor, experiment
from selabel_tf.training.doctor import BAD, GOOD, NOTE, Finding

ROOT = Path(__file__).resolve().parents[2]


def by_name(findings):
    return {finding.what: finding for finding in findings}


def test_a_healthy_run_has_nothing_to_fix(tmp_path, small_config):
    found = by_name(doctor.examine(small_config(), tmp_path / "run"))
    assert [finding.what for finding in found.values() if finding.state == BAD] == []
    assert found["images"].seen == "60 of 16x16x1 in digits, held in memory"
    assert "60 x 7 scores on 1 x" in found["memory"].seen
    assert "wanted for checkpoints of" in found["disk"].seen
    assert {"Python", "tensorflow", "keras", "devices", "run folder"} <= set(found)
    assert list(tmp_path.iterdir()) == []  # nothing was written


def test_without_a_config_the_environment_alone_is_looked_at():
    assert not {"images", "memory", "disk", "run folder"} & set(by_name(doctor.examine()))


@pytest.mark.parametrize(
    "requirement, state, seen",
    [
        ("keras>=3.0,<99", GOOD, "(tested: <99,>=3.0)"),
        ("keras>=99", BAD, "(tested: >=99)"),
        ("nowhere_to_be_found>=1", BAD, "missing (tested: >=1)"),
    ],
)
def test_packages_are_compared_with_what_was_tested(requirement, state, seen):
    finding = doctor.package(Requirement(requirement))
    assert finding.state == state and finding.seen.endswith(seen)
    assert bool(finding.remedy) == (state == BAD) and (
        state == GOOD or f'pip install "{finding.what}' in finding.remedy
    )


def test_another_python_is_to_be_replaced(monkeypatch):
    monkeypatch.setattr(doctor, "TESTED_PYTHON", ((4, 0), (4, 2)))
    finding = doctor.environment()[0]
    assert (finding.state, finding.remedy) == (BAD, "Use a Python from 4.0 to 4.2.")


def test_a_package_that_is_not_installed_cannot_tell_its_needs(monkeypatch):
    monkeypatch.setattr(doctor, "DISTRIBUTION", "nowhere_to_be_found")
    assert doctor.environment()[1].state == NOTE and "pip install -e ." in doctor.environment()[1].remedy


def test_the_versions_tested_are_those_of_the_projects_own_description():
    wanted = {Requirement(text).name for text in importlib.metadata.requires("selabel_tf") if "extra" not in text}
    assert wanted <= set(by_name(doctor.environment()))


def test_images_that_are_not_there_are_to_be_fixed(tmp_path, small_config):
    config = small_config(data=Data(source="folder", path=str(tmp_path / "nowhere")))
    (finding,) = doctor.run(config, None)
    assert (finding.what, finding.state) == ("images", BAD) and "nowhere is not a folder" in finding.seen


def test_a_bad_image_is_worth_a_note(tmp_path, small_config):
    (tmp_path / "a.png").write_bytes(b"")
    (finding,) = doctor.run(small_config(data=Data(source="folder", path=str(tmp_path))), None)
    assert finding.state == NOTE and "a.png is not an image" in finding.seen and "max_bad_share" in finding.remedy


def test_too_little_memory_for_the_label_passes_is_to_be_fixed(small_config, monkeypatch):
    monkeypatch.setattr(relabel, "available_memory", lambda: 1000)
    finding = doctor.run(small_config(), None)[-1]
    assert (finding.what, finding.state) == ("settings and memory", BAD) and "needs memory" in finding.seen


def test_settings_that_cannot_be_trained_are_to_be_fixed(small_config):
    finding = doctor.run(small_config(label=Label(labeller="given"), model=Model(num_clusters=(5,))), None)[-1]
    assert finding.state == BAD and "classes" in finding.seen


def test_a_run_that_could_not_be_judged_at_its_end_is_to_be_fixed(small_config):
    finding = doctor.run(small_config(evaluation=Evaluation(knn_k=60)), None)[-1]
    assert finding.state == BAD and "evaluation.knn_k=60: k=60, but each query has 59 candidates" in finding.seen


def test_a_full_disk_is_to_be_fixed(tmp_path, small_config, monkeypatch):
    monkeypatch.setattr(storage, "available_disk", lambda folder: 2**20)
    finding = by_name(doctor.run(small_config(), tmp_path))["disk"]
    assert finding.state == BAD and finding.seen.startswith("1.0 MiB free") and "another disk" in finding.remedy
    assert "wanted for checkpoints of" in finding.seen
    (short,) = doctor.at_start(tmp_path)  # how large a checkpoint is, is not known yet
    assert short.what == "disk" and short.seen == "1.0 MiB free, 256.0 MiB wanted"


def test_a_folder_that_is_taken_or_cannot_be_written_is_to_be_fixed(tmp_path, small_config, finished_run, monkeypatch):
    (taken,) = doctor.folder(replace(small_config(), seed=7), finished_run)
    assert taken.state == BAD and "holds a run with other settings:\n  seed: 0 -> 7" in taken.seen
    (tmp_path / "file").write_text("")
    (no_folder,) = doctor.folder(None, tmp_path / "file" / "run")
    assert no_folder.state == BAD and "another --workdir" in no_folder.remedy


def test_a_finding_is_one_sentence_and_its_remedy():
    assert str(Finding("disk", BAD, "1 MiB free", "Free some.")) == "disk: 1 MiB free. Free some."
    assert str(Finding("disk", GOOD, "9 MiB free")) == "disk: 9 MiB free."


def test_the_tool_shows_a_table_and_says_what_is_next_or_to_fix(tmp_path):
    """One process for a config that is fine, one for a config whose images are not there."""

    def run(*arguments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}
        command = [sys.executable, "-m", "tools.doctor", "--config=configs/digits.py", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=600)

    fine = run(f"--workdir={tmp_path / 'run'}", "--set=epochs=3", "--set", "model.num_clusters=5,7")
    assert (fine.returncode, fine.stderr) == (0, "")
    lines = fine.stdout.splitlines()
    assert lines[0].startswith("ok    Python ") and lines[-1] == (
        f"Nothing to fix. Next: python -m tools.train --config=configs/digits.py --workdir={tmp_path / 'run'} "
        "--set epochs=3 --set model.num_clusters=5,7"
    )
    assert len({line.index("2.") for line in lines if line.startswith("ok    tensorflow ")}) == 1
    ill = run("--set=data.source=folder", f"--set=data.path={tmp_path / 'nowhere'}")
    assert (ill.returncode, ill.stderr) == (1, "")
    assert "to fix  images" in ill.stdout and ill.stdout.endswith("\nTo fix: 1\n")
    assert list(tmp_path.iterdir()) == []


def test_training_begins_with_a_short_look(tmp_path):
    assert doctor.at_start(tmp_path) == []
    assert not experiment.is_finished(tmp_path)
