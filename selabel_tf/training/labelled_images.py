"""Images to fine-tune and to test on, with what is asked of them: one class, or several, for each image."""

from dataclasses import dataclass

from ..data import Source, multi_label
from ..evaluation import probes
from .label_tasks import MultiLabel, SingleLabel


@dataclass(frozen=True)
class LabelledImages:
    """`task` has the targets of `train` and judges on `test`; tested_on: what `test` is, in words."""

    train: Source
    test: Source
    task: SingleLabel | MultiLabel
    tested_on: str

    def subset(self, rows) -> "LabelledImages":
        """Fewer images to train on, tested on the same ones. Of a SingleLabel task."""
        if not isinstance(self.task, SingleLabel):
            raise ValueError(
                f"The images of {self.train.name} show several classes each, and a part of them with equal shares of "
                "all classes is not defined. Choose images with one class each."
            )
        train = self.train.subset(rows)
        return LabelledImages(train, self.test, SingleLabel(train, self.test), self.tested_on)


def labelled_images(run, train, test, settings=(), *, policy=None, seed=0) -> LabelledImages:
    """The images that run.sources(settings) gave as `train` and `test`, with their labels.

    Without `test` a fifth of `train` is held out, drawn with `seed` from every class. policy: the augmentation of
    training, in place of that of `settings`; test images are shown as that policy shows them without randomness.
    """
    config = run.data_config(settings)
    if policy is not None:
        train, test = (source and _shown(source, policy, config.augment) for source in (train, test))
    if train.classes is not None:
        return _single(run, train, test, seed)
    data = config.data
    labels = multi_label.from_tfds(data.name, data.split, data.data_dir or None) if data.source == "tfds" else None
    if labels is None:
        raise ValueError(
            f"{train.name} has no true classes to learn. Choose labelled images, e.g. a folder with one sub-folder per "
            "class: --set data.source=folder --set data.path=..."
        )
    if test is None:
        raise ValueError(
            f"The images of {train.name} show several classes each, and need a split to be tested on: "
            "--set data.test_split=test"
        )
    unseen = multi_label.from_tfds(data.name, data.test_split, data.data_dir or None)
    task = MultiLabel(labels.of(train.ids), unseen.of(test.ids))
    return LabelledImages(train, test, task, _tested_on(test))


def _single(run, train, test, seed):
    if test is not None:
        return LabelledImages(train, test, SingleLabel(train, test), _tested_on(test))
    own = train.fingerprint == run.training_set.fingerprint
    kept, held = probes.held_out_fifth(train.classes, seed=seed)
    seen = "; the network has seen them, without their classes" if own else ""
    words = f"tested on {len(held)} images held out of the training set, seed {seed}{seen}"
    train, test = train.subset(kept), train.subset(held)
    return LabelledImages(train, test, SingleLabel(train, test), words)


def _tested_on(test):
    return f"tested on {test.num_examples} images of {test.name}"


def _shown(source, policy, augment):
    """`source` under another policy, with the size and normalisation that the network is used to."""
    return source.augmented(policy, augment.size or None, mean=augment.mean or None, std=augment.std or None)
