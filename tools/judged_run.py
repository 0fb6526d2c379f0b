"""What the tools that judge a run share: which run, on which images, and where the result is kept.

Without --set a run is judged on the images it was trained and tested on. Other images are chosen by their settings:

    --set data.name=cifar100                                      another TFDS set of the same kind
    --set data.source=folder --set data.path=photos               a folder, one sub-folder per class
    --set data.data_dir=DIR                                       the same set, moved

Results are kept as <workdir>/evaluation/<tool>.json, or <tool>-<data>.json for other images than the run's own; where
a tool has variants, as <tool>_<variant>. Of two sets of images with the same name, the second is kept as
<tool>-<data>-<digits of its fingerprint>. Images shown otherwise than by the run (--set augment.mean=... --set
augment.std=...), and its own tested on another split, have a place of their own too: <tool>-<settings>.
"""

import hashlib
import re
from dataclasses import dataclass, replace

from absl import flags

from selabel_tf import config as configs
from selabel_tf import json_file
from selabel_tf.data import Source
from selabel_tf.evaluation import results
from selabel_tf.training.trained_run import TrainedRun, load_run

WORKDIR = flags.DEFINE_string("workdir", None, "The folder of the run, as given to tools.train.", required=True)
SET = flags.DEFINE_multi_string(
    "set", [], "Judges on other images: data.field=value or augment.field=value; may be given many times."
)


SHOWN = ("augment.", "data.test_split=")  # settings of how the run's images are shown and split, not of which they are


@dataclass(frozen=True)
class JudgedRun:
    """A run and the images to judge it by. `test` is None where there is no test split; changes: settings by which
    images are shown, or the run's own ones split, otherwise than by the run itself."""

    run: TrainedRun
    train: Source
    test: Source | None
    changes: tuple[str, ...] = ()

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
        if self.changes:
            name += f"-{_short('_'.join(self.changes))}"
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
                "own": self.on_own_images and not self.changes,
                "changes": list(self.changes),
            },
            settings=settings,
            rows=rows,
        )


def load(*, classes_needed=True):
    """The run of --workdir with the images of --set. classes_needed: images without true classes are refused."""
    run = load_run(WORKDIR.value)
    results.check_writable(run.workdir)
    train, test = run.sources(SET.value)
    for source in (train, test):
        if classes_needed and source is not None and source.classes is None:
            raise ValueError(
                f"{source.name} has no true classes to judge by. Choose labelled images, e.g. a folder with one "
                "sub-folder per class: --set data.source=folder --set data.path=..."
            )
    judged = JudgedRun(run, train, test)
    shown = SHOWN if judged.on_own_images else SHOWN[:1]  # the split of other images is part of choosing them
    changed = configs.assignments(run.data_config(), run.data_config(SET.value))
    return replace(judged, changes=tuple(text for text in changed if text.startswith(shown)))


def words(*other_flags):
    """--workdir and --set as they were given, for a command to go on with; of other flags those that were given."""
    given = [f"--{flag.name}={','.join(map(str, _list(flag.value)))}" for flag in other_flags if flag.present]
    return [f"--workdir={WORKDIR.value}", *(word for text in SET.value for word in ("--set", text)), *given]


def layers_variant(names):
    """Of a result for chosen layers; that for the network's own features has none."""
    return _short("_".join(names))


def _list(value):
    return value if isinstance(value, list) else [value]


def _short(text, most=60):
    """A part of a file name that tells one text from another."""
    plain = re.sub(r"[^\w.]+", "_", text).strip("_.")
    return plain if len(plain) <= most else f"{plain[: most - 9]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


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
