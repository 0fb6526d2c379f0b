"""Writes the model card of a run: data, recipe, label passes, results, preprocessing, limits, checksums; in Markdown.

    python -m tools.model_card --workdir=runs/digits                     runs/digits/MODEL_CARD.md
    python -m tools.model_card --workdir=runs/digits --output=CARD.md

It shows every result found in the run folder: measure first (tools.knn, tools.linear_probe, ...), then write the card.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

from absl import flags

from selabel_tf.training import card
from selabel_tf.training.trained_run import load_run
from tools import console

WORKDIR = flags.DEFINE_string("workdir", None, "The folder of the run, as given to tools.train.", required=True)
OUTPUT = flags.DEFINE_string("output", None, f"The file to write. By default {card.FILE} in the run folder.")


def main(_):
    path = card.write(load_run(WORKDIR.value), OUTPUT.value)
    print(f"Model card: {path}")


if __name__ == "__main__":
    console.run(main)
