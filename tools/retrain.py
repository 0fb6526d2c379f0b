"""Trains a network from scratch on the labels that another run has found: label transfer, the paper's SeLa-.

    python -m tools.retrain --labels=runs/cifar10_cpu --config=configs/cifar10_cpu_retrain.py --workdir=runs/retrained
    python -m tools.retrain --labels=labels.parquet --config=configs/... --workdir=... --heads=0,3
    python -m tools.retrain --labels=runs/cifar10_cpu --config=... --workdir=... --set model.backbone=small_conv

--labels is the folder of a finished run, or a labels file (tools.labels). Images must be those that the labels are of.
The network and its training are those of the config, with one head for each head of the labels, or for the chosen ones.
Labels of other images, with gaps, or without a chosen head are refused before anything is written.

"+ Rot" is --set model.objectives=labels,rotation, "+ more aug." is --set augment.more=one_of; configs/*_retrain_rot.py
and *_retrain_rot_moreaug.py have them.

All else is as in tools.train: the same command again resumes the run, which keeps a copy of the labels
(given_labels.csv) and needs the first run no more.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

from pathlib import Path

from absl import flags

from selabel_tf import config as configs
from selabel_tf.training import given_labels
from tools import console, train

LABELS = flags.DEFINE_string("labels", None, "Folder of a finished run, or a labels file.", required=True)
HEADS = flags.DEFINE_list("heads", [], "Heads of the labels to train on, e.g. 0,3. All by default.")
flags.adopt_module_key_flags(train)


def main(_):
    config = configs.override(configs.load(train.CONFIG.value), ["label.labeller=given", *train.SET.value])
    config = given_labels.transferred(config, LABELS.value, _heads(), train.WORKDIR.value)
    compared = [LABELS.value] * Path(LABELS.value).is_dir() + [train.WORKDIR.value]
    return train.train(config, following=console.command("compare", *compared))


def _heads():
    try:
        return tuple(int(head) for head in HEADS.value)
    except ValueError:
        raise ValueError(f"--heads={','.join(HEADS.value)}: expected numbers of heads, e.g. 0,3.") from None


if __name__ == "__main__":
    console.run(main)
