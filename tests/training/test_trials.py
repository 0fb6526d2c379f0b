import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from selabel_tf import config as configs
from selabel_tf.evaluation import results
from selabel_tf.training import trials

ROOT = Path(__file__).resolve().parents[2]
FACTS = {"machine": "2 x86 cores", "commit": "abc1234"}


@pytest.fixture
def digits_run(finished_run, tmp_path, monkeypatch):
    """A function: changes of the config -> a finished run of configs/digits.py, its overrides included."""
    monkeypatch.chdir(ROOT)

    def make(name="run", **changes):
        folder = tmp_path / name
        shutil.copytree(finished_run, folder)
        config = replace(configs.read(folder / "config.json"), name="digits", **changes)
        (folder / "config.json").write_text(configs.to_json(config))
        return folder

    return make


def probe(folder, *, solver, top1, own=True):
    rows = [{"layer": "early", "top1": 0.1}, {"layer": "pool", "top1": top1}]
    data = {"own": own, "train": {"name": "digits"}}
    name = "linear_probe" if own else "linear_probe-other"
    results.save(folder, name, tool="linear_probe", model={}, data=data, settings={"solver": solver}, rows=rows)


def test_a_trial_holds_what_the_run_was_and_became(digits_run):
    folder = digits_run("mine", seed=3)
    with open(folder / "metrics.jsonl", "a") as log:
        log.write('{"kind": "knn", "step": 6, "epoch": 2, "accuracy": 0.25, "k": 5, "sigma": 0.1}\n')
    probe(folder, solver="sgd", top1=0.6)
    assert trials.of_run(folder, **FACTS)["linear"] is None
    probe(folder, solver="lbfgs", top1=0.5)
    probe(folder, solver="lbfgs", top1=0.7, own=False)
    facts = {"tool": "linear_probe", "model": {}, "data": {"own": True, "train": {"name": "digits"}}}
    results.save(folder, "linear_probe_conv1", settings={"solver": "lbfgs"}, rows=[{"top1": 0.8}], **facts)
    trial = trials.of_run(folder, rows=["mine", "part: too"], **FACTS)

    summary = json.loads((folder / "results.json").read_text())
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    labels = [record for record in log if record["kind"] == "labels" and record["head"] == 0]
    assert len(labels) == 3
    assert trial["nmi"] == labels[-1]["nmi"] != labels[0]["nmi"]
    assert trial["knn"] == summary["numbers"]["knn"][-1]["accuracy"]
    assert summary["numbers"]["knn"][-1]["what"] == "learned features"
    assert (trial["linear"], trial["curve"]) == (0.5, [[2, 0.25]])
    assert (trial["seed"], trial["epochs"], trial["images"]) == (3, 3, 60)
    assert trial["date"] == summary["facts"]["finished"][:10]
    assert {name: trial[name] for name in FACTS} == FACTS
    clock = [record["seconds"] for record in log if record["kind"] == "epoch"]
    assert len(clock) == 3 and trial["clock_hours"] == round(sum(clock) / 3600, 2)
    assert (trial["name"], trial["rows"], trial["config"]) == ("mine", ["mine", "part: too"], "configs/digits.py")


def test_the_overrides_and_the_command_lead_to_the_runs_config(digits_run):
    folder = digits_run(seed=3)
    config = configs.read(folder / "config.json")
    trial = trials.of_run(folder, **FACTS)
    assert configs.override(configs.load("configs/digits.py"), trial["overrides"]) == config
    assert trial["config_hash"] == configs.config_hash(config)
    assert trial["command"].startswith("python -m tools.train --config=configs/digits.py --workdir=runs/run --set ")
    assert all(f"--set {text}" in trial["command"] for text in trial["overrides"])


def test_where_a_machine_keeps_its_images_is_not_told(digits_run):
    data = configs.Data(source="tfds", name="cifar10", data_dir="/secret/place")
    assert "secret" not in json.dumps(trials.of_run(digits_run(data=data), **FACTS))


def test_label_transfer_is_told_by_its_own_tool_and_has_an_nmi(digits_run):
    label = configs.Label(labeller="given", labels="/secret/first", labels_sha256="0" * 64)
    trial = trials.of_run(digits_run(label=label), **FACTS)
    assert trial["command"].startswith("python -m tools.retrain --config=configs/digits.py")
    assert "--labels=runs/first" in trial["command"]
    assert "secret" not in json.dumps(trial)
    assert trial["nmi"] is not None


def test_labels_that_are_the_classes_have_no_nmi_and_a_run_without_probe_no_linear_figure(digits_run):
    trial = trials.of_run(digits_run(label=configs.Label(labeller="given")), **FACTS)
    assert trial["nmi"] is None
    assert trial["linear"] is None


def test_hours_by_the_clock_are_those_of_the_log_and_none_where_it_has_none(digits_run):
    folder = digits_run()
    log = folder / "metrics.jsonl"
    as_of_epoch = {1: 3600, 2: 1800, 3: 360}
    records = [json.loads(line) for line in log.read_text().splitlines()]
    timed = [{**r, "seconds": as_of_epoch[r["epoch"]]} if r["kind"] == "epoch" else r for r in records]
    log.write_text("".join(f"{json.dumps(r)}\n" for r in timed))
    assert trials.of_run(folder, **FACTS)["clock_hours"] == 1.6
    log.write_text("".join(f"{json.dumps({k: v for k, v in r.items() if k != 'seconds'})}\n" for r in timed))
    assert trials.of_run(folder, **FACTS)["clock_hours"] is None


def test_a_run_that_is_not_finished_is_refused(digits_run):
    folder = digits_run()
    (folder / "results.json").unlink()
    with pytest.raises(ValueError, match=r"no finished run\. Finish it with the command that began it.*--stopped"):
        trials.of_run(folder, **FACTS)


def test_of_a_run_that_was_given_up_its_curve_and_its_last_labels_are_kept(digits_run):
    folder = digits_run("given_up", epochs=11)
    probe(folder, solver="lbfgs", top1=0.5)
    finished = trials.of_run(folder, **FACTS)
    (folder / "results.json").unlink()
    os.utime(folder / "metrics.jsonl", (86400, 86400))
    trial = trials.of_run(folder, stopped=True, **FACTS)
    assert (finished["stopped"], trial["stopped"], trial["epochs"]) == (None, 3, 11)
    assert (trial["knn"], trial["date"]) == (None, "1970-01-02")
    same = set(trial) - {"stopped", "knn", "date"}
    assert {name: trial[name] for name in same} == {name: finished[name] for name in same}


def test_what_contradicts_a_run_that_was_given_up_is_refused(digits_run):
    folder = digits_run()
    with pytest.raises(ValueError, match=r"holds a finished run\. Record it without --stopped"):
        trials.of_run(folder, stopped=True, **FACTS)
    (folder / "results.json").unlink()
    with pytest.raises(ValueError, match=r"no figures for the row 'best'\. Leave the row out"):
        trials.of_run(folder, stopped=True, rows=["best"], **FACTS)


def test_results_of_another_form_are_told_as_the_files_mistake(digits_run):
    folder = digits_run()
    (folder / "results.json").write_text('{"facts": {"finished": "2026-11-17"}}')
    with pytest.raises(ValueError, match=r"does not hold a finished run as this version writes it .KeyError"):
        trials.of_run(folder, **FACTS)


def test_a_run_that_was_not_judged_by_neighbours_is_refused_with_the_reason(digits_run):
    folder = digits_run()
    (folder / "results.json").write_text('{"facts": {"finished": "2026-11-17"}, "numbers": {}}')
    with pytest.raises(ValueError, match=r"no accuracy by nearest neighbours: evaluation.knn was off, or its images"):
        trials.of_run(folder, **FACTS)


def test_a_trial_of_the_same_name_is_replaced_in_its_place_and_keeps_its_rows_if_given_none():
    kept = [{"name": "a", "data": "x", "rows": ["best"], "remark": "by hand"}, {"name": "b", "rows": []}]
    done, stopped = {"name": "a", "data": "x", "stopped": None}, {"name": "a", "data": "x", "stopped": 3}
    again = trials.add(kept, {**done, "rows": []})
    assert again == [{**done, "rows": ["best"], "remark": "by hand"}, kept[1]]
    assert trials.add(kept, {**done, "rows": ["other"]})[0]["rows"] == ["other"]
    assert trials.add(kept, {**stopped, "rows": []})[0] == {
        **stopped,
        "rows": [],
        "remark": "by hand",
    }  # counts nowhere
    assert [trial["name"] for trial in trials.add(kept, {"name": "c", "data": "x", "rows": []})] == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"c was trained on y, and the trials of this file on x\. .*--results=FILE"):
        trials.add(kept, {"name": "c", "data": "y", "rows": []})
