"""Trains a network on labels that nobody gave it, and writes everything a run leaves into one folder.

    python -m tools.train --config=configs/digits.py --workdir=runs/digits
    python -m tools.train --config=configs/digits.py --workdir=runs/short --set epochs=4 --set label.num_relabels=8

The same command again resumes the run at the very step that its last checkpoint was written after, or says that it is
finished. Ctrl-C and SIGTERM save a checkpoint and leave with exit code 75 within 10 seconds (or one training step, if
that takes longer); SIGKILL and power cuts cost no more than what came after the last checkpoint. The folder then holds:

    config.json     the settings              labels.csv      the labels of every image, one column per head
    metrics.jsonl   what happened, by step    backbone.keras  the trained network without its heads
    results.json    what was measured         report.html     the same, with pictures
    checkpoints/    to resume from            logs/           for tensorboard --logdir
    quarantine.csv  images that cannot be decoded and were left out (not of sets that are held in memory)
    MODEL_CARD.md   what the network is, what it was made of, and how good it is
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import os
import shlex
import sys
import time
import warnings
from pathlib import Path

import keras
from absl import flags

from selabel_tf import config as configs
from selabel_tf.evaluation.report import format_table
from selabel_tf.training import card, checkpoints, doctor, experiment
from selabel_tf.training.interruption import EXIT_CODE, Interrupted, Interruption
from selabel_tf.training.trained_run import load_run
from tools import console

CONFIG = flags.DEFINE_string(
    "config", None, "The experiment: a file of configs/, or the config.json of an earlier run.", required=True
)
WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder, e.g. runs/digits. Made if missing.", required=True)
SET = flags.DEFINE_multi_string(
    "set", [], "Changes one setting of the config, section.field=value; may be given many times."
)
DEVICES = flags.DEFINE_string(
    "devices", None, "Devices to train on, e.g. cpu or gpu:0,gpu:1. By default all GPUs, or the CPU if there is none."
)


class Narrator(keras.callbacks.Callback):
    """Tells a person what a run does: a progress bar, and a line per label pass above it."""

    def __init__(self):
        super().__init__()
        self.progress = None

    def on_epoch_begin(self, epoch, logs=None):
        self.before = epoch * self.params["steps"]
        if self.progress is None:
            total = self.params["epochs"] * self.params["steps"]
            self.progress = console.Progress(total, "training", start=self.before)
            self.resumed = True

    def on_train_batch_begin(self, batch, logs=None):
        if self.resumed:  # perhaps in the middle of an epoch: what was done before does not count for the rate
            self.progress.start = self.progress.done = self.before + batch
            self.resumed = False

    def on_train_batch_end(self, batch, logs=None):
        shown = {name: logs[name] for name in ("loss", "rotation_accuracy") if name in logs}
        self.progress.update(self.before + batch + 1, **shown)

    def on_train_end(self, logs=None):
        if self.progress is not None:
            self.progress.close()
            self.progress = None

    def say(self, text):
        if self.progress is None:
            print(text, flush=True)
        else:
            self.progress.line(text)

    def label_pass(self, label_pass):
        self.say(label_pass.summary())

    def within_label_pass(self, number, what, done, total):
        share = f" {100 * done // total}%" if total else f" pass {done}"
        self.progress.update(self.progress.done, labels=f"{number + 1}: {what}{share}")

    def examined(self, done, total):
        if self.progress is None:
            self.progress = console.Progress(total, "examining images")
        self.progress.update(done)
        if done == total:
            self.on_train_end()

    def warning(self, message, *_):
        self.say(f"Warning: {message}")


def main(_):
    return train(configs.override(configs.load(CONFIG.value), SET.value))


def train(config, following=None):
    """Runs `config` in --workdir on --devices, and tells of it. following: what to do next, in words."""
    if experiment.is_finished(WORKDIR.value):
        experiment.check_folder(config, WORKDIR.value)
        print(f"This run is finished. Its results are in {_results()}.")
        if not (Path(WORKDIR.value) / card.FILE).is_file():  # killed just before its last line
            card.write(load_run(WORKDIR.value))
        return None
    start = time.monotonic()
    narrator = Narrator()
    watcher = experiment.Watcher(
        say=narrator.say,
        on_label_pass=narrator.label_pass,
        on_progress=narrator.within_label_pass,
        on_examined=narrator.examined,
        callbacks=(narrator,),
    )
    with warnings.catch_warnings(), Interruption():  # of the run, and of what comes before and behind it
        warnings.showwarning = narrator.warning
        try:
            for finding in doctor.at_start(WORKDIR.value):
                narrator.say(f"Doctor: {finding}")
            result = experiment.run(config, WORKDIR.value, devices=DEVICES.value, watcher=watcher)
            written = card.write(load_run(WORKDIR.value))
        except Interrupted as stop:
            narrator.on_train_end()
            print(f"{stop} {_how_to_go_on()}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(EXIT_CODE)  # all is saved and closed; to take TensorFlow down takes seconds of the grace period
    for table in result.tables:
        print(f"\n{format_table(table)}")
    print(f"\nFinished in {console.duration(time.monotonic() - start)}. Results: {_results()}    Card: {written}")
    page = "open that page"
    if not config.evaluation.report:
        page = f"draw its page with  {console.command('report', WORKDIR.value)}"
    curves = f"{page}, or look at the curves with  tensorboard --logdir {shlex.quote(f'{WORKDIR.value}/logs')}"
    print(f"Next: {following or curves}")
    return None


def _results():
    """The page of a finished run, or where it has none (evaluation.report=False), its numbers."""
    page = Path(WORKDIR.value) / "report.html"
    return page if page.is_file() else page.with_name("results.json")


def _how_to_go_on():
    checkpoint = checkpoints.latest(f"{WORKDIR.value}/checkpoints")
    place = f"from step {checkpoint.facts['step']}" if checkpoint else "from the beginning, as nothing was saved yet"
    program = Path(sys.argv[0]).stem  # tools.retrain trains by this module as well
    return f"The same command goes on {place}:\n  {console.command(program, *sys.argv[1:])}"


if __name__ == "__main__":
    console.run(main)
