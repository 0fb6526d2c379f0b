"""Keeps what finished runs have reached as one JSON file, and writes the tables of README and build notes from it.

    python -m tools.trials RUN RUN2 ...                              records them, renews the tables
    python -m tools.trials RUN_S0 RUN_S1 --row="SeLa [128 x 1]"      as seeds of one row of the README's table
    python -m tools.trials RUN --row="heads: ten of 128"             and, or, of the table "rows of heads"
    python -m tools.trials RUN --stopped                             a run without promise, given up: its curve alone
    python -m tools.trials                                           renews the tables only

Before, if the figures are to be complete:  python -m tools.linear_probe --workdir=RUN --solver=lbfgs
A run is known by its folder's name: recording it again replaces what was kept of it.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import tensorflow as tf
from absl import flags

from selabel_tf import json_file
from selabel_tf.atomic_file import write_atomically
from selabel_tf.evaluation import trial_tables
from selabel_tf.training import trials
from tools import console

RESULTS = flags.DEFINE_string("results", "configs/results/cifar10_trials.json", "The file the trials are kept in.")
ROWS = flags.DEFINE_multi_string("row", [], "A row these runs are seeds of, TITLE or PART: TITLE; may be repeated.")
STOPPED = flags.DEFINE_bool("stopped", False, "The runs were given up before their end: keep what they had reached.")
MACHINE = flags.DEFINE_string("machine", None, "Where the runs were trained; by default this machine, in words.")
COMMIT = flags.DEFINE_string("commit", None, "The version of the code they were trained with; by default git's HEAD.")
TEXTS = flags.DEFINE_list("texts", ["README.md", "BUILD_NOTES.md"], "Files whose tables are renewed.")


def main(argv):
    path = Path(RESULTS.value)
    kept = json_file.read_object(path, "a file of trials", "Move it away.") if path.is_file() else {}
    found = kept.get("trials", [])
    facts = {"machine": MACHINE.value or machine(), "commit": COMMIT.value or head(), "rows": ROWS.value}
    facts["stopped"] = STOPPED.value
    recorded = [trials.of_run(workdir, **facts) for workdir in argv[1:]]
    for trial in recorded:
        found = trials.add(found, trial)
    texts = {name: trial_tables.renewed(Path(name).read_text(), found, name) for name in TEXTS.value}
    if recorded:  # only now that nothing was refused
        content = {
            "command": "python -m tools.trials RUN ...",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": "of each trial its own",
            "trials": found,
        }
        write_atomically(path, json.dumps(content, indent=1) + "\n")
    for name, text in texts.items():
        write_atomically(name, text)
    for trial in recorded:
        if trial["linear"] is None and trial["stopped"] is None:
            print(f"{trial['name']} has no linear probe: python -m tools.linear_probe --solver=lbfgs --workdir=...")
    print(f"{len(found)} trials in {path}; tables renewed in {', '.join(texts)}.")


def machine():
    gpus = len(tf.config.list_physical_devices("GPU"))
    return f"{os.cpu_count()} {platform.machine()} cores, {gpus or 'no'} GPU"


def head():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    if done.returncode:
        raise ValueError("This folder is no git repository. Say which version of the code was trained: --commit=...")
    return done.stdout.strip()


if __name__ == "__main__":
    console.run(main, words=True)
