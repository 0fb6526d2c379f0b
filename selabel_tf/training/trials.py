"""A trial: what one finished run was, and how good it became, as one small entry of a JSON file.

    {"name": "sela_128x1_s0", "rows": ["SeLa [128 x 1]"], "config": "configs/cifar10_cpu.py",
     "overrides": ["model.num_clusters=128"], "command": "python -m tools.train ...", "config_hash": ...,
     "date": "2026-11-17", "machine": ..., "commit": ..., "data": "cifar10", "seed": 0, "epochs": 16,
     "images": 20000, "hours": 0.41, "clock_hours": 0.62, "stopped": None, "curve": [[4, 0.3777], [8, 0.4126]],
     "knn": 0.438, "linear": 0.473, "nmi": 0.136}

    curve    nearest-neighbour accuracy after epochs, as evaluation.knn_every had it measured
    knn      of the finished run, by its results.json; k and sigma are the config's
    linear   of tools.linear_probe --solver=lbfgs on the network's features; None if that was not run
    nmi      of the labels of head 0 to the true classes; None of a run whose labels are the classes, or were drawn
    hours    in training steps alone
    clock_hours  of all of training, label passes and measuring in between included; None of logs without it
    config_hash  of the settings but for those that say where images and labels are
    stopped  the epoch after which a run without promise was given up, None of a finished one; then knn is None
    rows     the rows of the README's tables that it counts for, as evaluation.trial_tables has them; seeds of one row
             share it

Nothing is measured here.
"""

import shlex
from datetime import UTC, datetime
from pathlib import Path

from .. import config as configs
from .. import json_file
from ..evaluation import results
from . import checkpoints, experiment
from .run_log import read_records

# Where a machine keeps images and labels is no part of a trial.
ELSEWHERE = ("data.data_dir=", "label.labels=", "label.labels_sha256=")


def of_run(workdir, *, machine, commit, rows=(), stopped=False) -> dict:
    """The trial of a finished run folder, or of one that was stopped and is not to be finished.

    machine, commit: where, and of which version of the code, it was trained.
    """
    workdir = Path(workdir)
    finished = experiment.is_finished(workdir)
    if not finished and not stopped:
        raise ValueError(
            f"{workdir} holds no finished run. Finish it with the command that began it, then record it; or record it "
            "as a run that was given up, with --stopped."
        )
    if finished and stopped:
        raise ValueError(f"{workdir} holds a finished run. Record it without --stopped.")
    if stopped and rows:
        raise ValueError(f"A run that was stopped has no figures for the row {rows[0]!r}. Leave the row out.")
    with json_file.trusting(workdir, "a finished run" if finished else "a run", "Train it again."):
        return _of_run(workdir, machine, commit, rows)


def _of_run(workdir, machine, commit, rows):
    config = configs.read(workdir / "config.json")
    file = f"configs/{config.name}.py"
    changed = configs.assignments(configs.load(file), config)
    overrides = [text for text in changed if not text.startswith(ELSEWHERE)]
    records = read_records(workdir / "metrics.jsonl")
    if experiment.is_finished(workdir):
        summary = json_file.read_object(workdir / "results.json", "results of ours", "Train again.")
        date, stopped = summary["facts"]["finished"], None
        if "knn" not in summary["numbers"]:
            raise ValueError(
                f"{workdir} has no accuracy by nearest neighbours: evaluation.knn was off, or its images have no "
                "classes. A trial is compared by it; leave this run out."
            )
        knn = {found["what"]: found["accuracy"] for found in summary["numbers"]["knn"]}["learned features"]
    else:
        date = datetime.fromtimestamp((workdir / "metrics.jsonl").stat().st_mtime, UTC).isoformat()
        stopped, knn = max((r["epoch"] for r in records if r["kind"] == "epoch"), default=0), None
    images = _images(workdir)
    tool, options = "train", [word for text in overrides for word in ("--set", text)]
    if config.label.labels:
        tool, options = "retrain", [f"--labels=runs/{Path(config.label.labels).name}", *options]
    command = ["python", "-m", f"tools.{tool}", f"--config={file}", f"--workdir=runs/{workdir.name}", *options]
    return {
        "name": workdir.name,
        "rows": list(rows),
        "config": file,
        "overrides": overrides,
        "command": shlex.join(command),
        "config_hash": configs.config_hash(configs.override(config, [*ELSEWHERE, "label.label_heads="])),
        "date": date[:10],
        "machine": machine,
        "commit": commit,
        "data": config.data.name or config.data.source,
        "seed": config.seed,
        "epochs": config.epochs,
        "images": images,
        "hours": round(sum(images / r["images_per_second"] for r in records if r["kind"] == "epoch") / 3600, 2),
        "clock_hours": _clock_hours(records),
        "stopped": stopped,
        "curve": [[r["epoch"], r["accuracy"]] for r in records if r["kind"] == "knn"],
        "knn": knn,
        "linear": _linear(workdir),
        "nmi": _nmi(config, records),
    }


def add(trials: list[dict], trial: dict) -> list[dict]:
    """`trials` with one more; one of the same name is replaced, in its place: its rows are kept where none are
    given, and a remark on it."""
    others = {other["data"] for other in trials if "data" in other} - {trial["data"]}
    if others:
        raise ValueError(
            f"{trial['name']} was trained on {trial['data']}, and the trials of this file on {', '.join(others)}. Keep "
            "it in a file of its own, and out of these tables: --results=FILE --texts="
        )
    names = [other["name"] for other in trials]
    if trial["name"] not in names:
        return [*trials, trial]
    place = names.index(trial["name"])
    before = trials[place]
    kept = {"rows": before["rows"]} if not trial["rows"] and trial["stopped"] is None else {}
    kept |= {"remark": before["remark"]} if "remark" in before else {}
    return [*trials[:place], {**trial, **kept}, *trials[place + 1 :]]


def _images(workdir):
    """How many images a run was trained on, as its last checkpoint tells."""
    return checkpoints.latest(workdir / "checkpoints").facts["training_set"]["num_examples"]


def _clock_hours(records):
    seconds = [record.get("seconds") for record in records if record["kind"] == "epoch"]
    return None if None in seconds else round(sum(seconds) / 3600, 2)


def _linear(workdir):
    result = results.load_all(workdir).get("linear_probe")  # of the network's features: chosen layers have other names
    return result["rows"][-1]["top1"] if result and result["settings"].get("solver") == "lbfgs" else None


def _nmi(config, records):
    if config.label.labeller == "given" and not config.label.labels:
        return None
    passes = [record for record in records if record["kind"] == "labels" and record["head"] == 0]
    return passes[-1].get("nmi") if passes else None
