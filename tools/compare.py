"""One table of several runs: SeLa against its baselines, with the paper's figures beside ours where there are any.

    python -m tools.compare runs/sela runs/kmeans runs/supervised
    python -m tools.compare runs/digits configs/cifar10.py --format=markdown --output=table.md

Each argument is a run folder, finished or not, or a config file. Nothing is measured here: figures are those of the
run's results.json and of the evaluation tools' files in it; of a config, those kept in configs/results/<name>.json
and <name>-*.json. What nobody has measured is a dash, and the last lines say which commands measure it.

A figure of the paper stands beside a run only if training images (all of them), imbalance, images judged on, backbone,
clusters and labeller are those of the paper's experiment. Otherwise the paper's figures for the same images are rows
of their own: its numbers, in its setting. Both are marked (paper).
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import json
from pathlib import Path

from absl import flags

from selabel_tf.atomic_file import write_atomically
from selabel_tf.evaluation import comparison
from selabel_tf.evaluation.report import format_table
from selabel_tf.training.compared_runs import entries_of
from tools import console

CONFIG = flags.DEFINE_multi_string("config", [], "A config file; the same as naming it among the runs.")
LAYERS = flags.DEFINE_enum("layers", "last", ["last", "all"], "Which probed layers to show: the last one, or all.")
FORMAT = flags.DEFINE_enum("format", "text", ["text", "markdown", "json"], "How the table is written.")
OUTPUT = flags.DEFINE_string("output", None, "Writes the table to this file and not to the screen.")

COMMANDS = {
    "knn": ("knn", "--workdir={run}"),
    "linear": ("linear_probe", "--workdir={run}"),
    "clusters": ("clusters", "--workdir={run}"),
    "all": ("train", "--config={name}", "--workdir={run}"),
    "retrain": ("retrain", "--config={name}", "--workdir={run}", "--labels=..."),
}


def main(argv):
    names = [*argv[1:], *CONFIG.value]
    if not names:
        raise ValueError("Nothing to compare. Give run folders or configs: python -m tools.compare runs/a runs/b")
    found = comparison.compare([entry for name in names for entry in entries_of(name)], LAYERS.value)
    text = {"text": as_text, "markdown": as_markdown, "json": as_json}[FORMAT.value](found)
    if OUTPUT.value:
        write_atomically(OUTPUT.value, text)
        print(f"The table is in {OUTPUT.value}.")
    else:
        print(text, end="")


def commands(missing):
    """One command for each thing that is missing; of a config, after the one that runs it."""
    lines = []
    for measure, name in missing:
        run = f"runs/{Path(name).stem}" if name.endswith(".py") else name
        lines.append(console.command(*(word.format(name=name, run=run) for word in COMMANDS[measure])))
    return lines


def as_text(found):
    lines = [format_table(found.table), *found.notes]
    if found.missing:
        lines += ["", "A dash was not measured. To measure it:", *(f"  {line}" for line in commands(found.missing))]
    return "\n".join(lines) + "\n"


def as_markdown(found):
    lines = [
        f"**{found.table.title}**",
        "",
        comparison.markdown(found.table),
        "",
        *(f"- {note}" for note in found.notes),
    ]
    if found.missing:
        lines += ["", "A dash was not measured. To measure it:", "", "```", *commands(found.missing), "```"]
    return "\n".join(lines) + "\n"


def as_json(found):
    content = {"unit": "percent", "rows": found.rows, "notes": found.notes, "missing": commands(found.missing)}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


if __name__ == "__main__":
    console.run(main, words=True)
