"""What the tools that judge a run share: which run, on which images, and where the result is kept.

Without --set a run is judged on the images it was trained and tested on. Other images are chosen by their settings:

    --set data.name=cifar100                                      another TFDS set of the same kind
    --set data.source=folder --set data.path=photos               a folder, one sub-folder per class
    --set data.data_dir=DIR                                       the same set, moved

Results are kept as <workdir>/evaluation/<tool>.json, or <tool>-<data>.json for other images than the run's own; where
a tool has variants, as <tool>_<variant>. Of two sets of images with the same name, the second is kept as
<tool>-<data>-<digits of its fingerprint>.
"""

import re
from dataclasses import dataclass

from absl import flags

from selabel_tf import json_file
from selabel_tf.data import Source
from selabel_tf.evaluation import results
from selabel_tf.training.trained_run import TrainedRun, load_run

WORKDIR = flags.DEFINE_string("workdir", None, "The folder of the run, as given to tools.train.", required=True)
SET = flags.DEFINE_multi_string(
    "set", [], "Judges on other images: data.field=value or augment.field=value; may be given many times."
)


@dataclass(frozen=True)
class JudgedRun:
    """A run and the images to judge it by. `test` is None where there is no test split."""

    run: TrainedRun
    train: Source
    test: Source | None

    @property
    def on_own_images(self):
        """Whether these are the images that the run was trained on."""
        return self.train.fingerprint == self.run.training_set.fingerprint

    def path(self, tool, variant=""):
        """Where the result of a tool is kept."""
        folder, name = self.run.workdir / results.FOLDER, f"{tool}_{variant}" if variant else tool
        if not self.on_own_images:
            of = re.sub(r"[^\w.]+", "_", self.train.name).strip("_.")
            name += f"-{of or 'images'}"
            if _images_of(folder / f"{name}.json") not in (None, self.train.fingerprint):
                name += f"-{self.train.fingerprint[:8]}"
        return folder / f"{name}.json"

    def save(self, tool, settings, rows, variant=""):
        """Keeps the table `rows` (flat dicts of plain values) beside the run; the path."""
        facts = self.run.checkpoint.facts
        return results.save(
            self.run.workdir,
            self.path(tool, variant).stem,
            tool=tool,
            model={
                "run": self.run.config.name,
                "backbone": self.run.config.model.backbone,
                "epoch": facts["epoch"],
                "config_hash": facts["config_hash"],
            },
            data={
                "train": _described(self.train),
                "test": self.test and _described(self.test),
                "own": self.on_own_images,
            },
            settings=settings,
            rows=rows,
        )


def load(*, classes_needed=True):
    """The run of --workdir with the images of --set. classes_needed: images without true classes are refused."""
    run = load_run(WORKDIR.value)
    train, test = run.sources(SET.value)
    for source in (train, test):
        if classes_needed and source is not None and source.classes is None:
            raise ValueError(
                f"{source.name} has no true classes to judge by. Choose labelled images, e.g. a folder with one "
                "sub-folder per class: --set data.source=folder --set data.path=..."
            )
    return JudgedRun(run, train, test)


def _images_of(path):
    """The fingerprint of the images that a result is of; None where there is none, "" where it does not say."""
    if not path.is_file():
        return None
    try:
        return json_file.read_object(path, "a result of ours", "Remove it.")["data"]["train"]["fingerprint"]
    except (ValueError, LookupError, TypeError):
        return ""


def _described(source):
    return {"name": source.name, "num_examples": source.num_examples, "fingerprint": source.fingerprint}
