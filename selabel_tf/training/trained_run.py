"""A run folder as later tools see it: its settings, its network, and images to judge it by. Nothing is written.

    run = load_run("runs/digits")
    train, test = run.sources()                                             what the run was trained and tested on
    train, test = run.sources(["data.name=cifar100", "data.data_dir=..."])  or other images, brought to its input size

The network is made from the checkpoint alone: its training images need not be there.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from .. import config as configs
from .. import json_file
from ..config import Config, Data
from ..models import SelfLabelModel
from . import checkpoints
from .assembly import TrainingSet, make_model, make_source
from .quarantine import set_aside

PLACE = ("name", "path")  # of the settings of images, those that say which set they are


@dataclass(frozen=True)
class TrainedRun:
    """One run at its newest checkpoint."""

    workdir: Path
    config: Config
    checkpoint: checkpoints.Checkpoint
    training_set: TrainingSet
    model: SelfLabelModel

    def data_config(self, settings=()):
        """The run's config with `settings` ("data.name=cifar100", ...) for its images; the input size stays.

        Of another set of images all are taken, unless `settings` say otherwise: how many of a class the run was trained
        on, and how unevenly, is a matter of its own set. Each image comes once: small crops beside it are for
        self-labelling alone.
        """
        for setting in settings:
            if not setting.startswith(("data.", "augment.")) or setting.startswith("augment.small_"):
                raise ValueError(
                    f"{setting!r} is a setting of training, which is over. Images are chosen by data.* and augment.*."
                )
        config = configs.override(replace(self.config, data=self._data_for(settings)), settings)
        config = replace(config, augment=replace(config.augment, small_crops=0, small_size=0))
        height, width, _ = self.training_set.image_shape
        if not config.augment.size and height == width:  # else images come as they are stored
            config = replace(config, augment=replace(config.augment, size=height))
        return config

    def _data_for(self, settings):
        """The run's own choice of images, as far as it holds for those that `settings` choose."""
        data = self.config.data
        given = {name.strip(): value.strip() for name, _, value in (setting.partition("=") for setting in settings)}
        if given.get("data.source", data.source) != data.source:
            return Data(max_bad_share=data.max_bad_share)
        elsewhere = any(given.get(f"data.{name}", getattr(data, name)) != getattr(data, name) for name in PLACE)
        moved = elsewhere and data.source == "folder" and self._own_images(configs.override(self.config, settings))
        return replace(data, examples_per_class=0, imbalance="none") if elsewhere and not moved else data

    def _own_images(self, config):
        """The training images of `config` without those set aside, if these are the run's own; or None."""
        bad = set_aside(self.workdir)
        try:
            source = make_source(config, without=bad)
        except (ValueError, OSError):
            return None
        return source if source.fingerprint == self.training_set.fingerprint else None

    def sources(self, settings=()):
        """(train, test): the images of `data_config`; `test` is None where there is no test split."""
        config = self.data_config(settings)
        train = self.training_images(settings)
        test = make_source(config, config.data.test_split) if config.data.test_split else None
        wanted = self.training_set.image_shape
        for source in (train, test):
            if source is not None and tuple(source.image_shape) != wanted:
                raise ValueError(
                    f"{source.name} gives images {_by(source.image_shape)}, the network of {self.workdir} takes "
                    f"{_by(wanted)}. {_remedy(source.image_shape, wanted, config)}"
                )
        return train, test

    def training_images(self, settings=()):
        """The training split of `data_config`; of the run's own images those that it set aside are left out."""
        config = self.data_config(settings)
        own = self._own_images(config) if set_aside(self.workdir) else None
        return own or make_source(config)

    def untrained_model(self):
        """The same network as it was before the first step: the baseline of random weights."""
        return make_model(self.config, self.training_set)


def load_run(workdir) -> TrainedRun:
    """The run in `workdir`, at its newest whole checkpoint; finished, or in the middle of training."""
    workdir = Path(workdir)
    record = workdir / "config.json"
    if not record.is_file():
        raise ValueError(f"{workdir} holds no run: it has no config.json. Give the --workdir of a tools.train run.")
    config = configs.read(record)
    model = None
    while True:
        checkpoint = checkpoints.latest(workdir / "checkpoints")
        if checkpoint is None:
            raise ValueError(
                f"{workdir} has no whole checkpoint yet. Let the run reach its first one, or resume it with "
                "tools.train."
            )
        try:
            training_set = TrainingSet.from_checkpoint(checkpoint, config.model.num_clusters)
            model = model or make_model(config, training_set)
            with json_file.trusting(checkpoint.path, "a checkpoint", "Resume from another one, or train again."):
                checkpoints.restore(checkpoint, model)
        except FileNotFoundError:  # the run goes on, and has removed it since we looked: there is a newer one
            continue
        return TrainedRun(workdir, config, checkpoint, training_set, model)


def _remedy(given, wanted, config):
    if given[2] != wanted[2] and config.data.source == "folder":
        return (
            "Images of a folder have three channels, gray ones too; tools.labels --assign makes them gray, and finds "
            "their clusters. To judge by them, choose a TFDS set of gray images."
        )
    if given[2] != wanted[2]:
        return f"Choose images of {wanted[2]} channel{'s' * (wanted[2] > 1)}."
    if wanted[0] != wanted[1]:
        return "Images are brought to squares only: choose images that are stored in this size."
    return "Leave augment.size as it was in training."


def _by(shape):
    return "x".join(map(str, shape))
