"""The parts of an experiment, made from its config: source, model, label passes, learning rate."""

import math
from dataclasses import dataclass, replace

import keras
import tensorflow as tf

from .. import json_file
from ..data import digits, from_folder, from_tfds, imbalanced
from ..models import Projection, SelfLabelModel, backbone
from . import checkpoints
from .self_label_callback import SelfLabelCallback
from .sgd import CoupledSGD


@dataclass(frozen=True)
class TrainingSet:
    """What a model has to know of its training images: enough to make it again without them."""

    name: str
    num_examples: int
    image_shape: tuple[int, int, int]
    fingerprint: str

    @classmethod
    def of(cls, source):
        return cls(source.name, source.num_examples, tuple(source.image_shape), source.fingerprint)

    @classmethod
    def from_checkpoint(cls, checkpoint, num_clusters):
        """As a checkpoint tells it, which anybody may have written.

        What its file is too small for is refused: the model would be made first, whatever its size, and compared then.
        """
        remedy = "Resume from another one, or train again."
        with json_file.trusting(checkpoint.path, "a checkpoint", remedy):
            facts = checkpoint.facts["training_set"]
            found = cls(**facts | {"image_shape": tuple(facts["image_shape"])})
            numbers = (found.num_examples, *found.image_shape)
            if len(numbers) != 4 or not all(type(number) is int and 0 < number < 2**40 for number in numbers):
                raise TypeError(f"training_set {facts}")
        least = 4 * (found.num_examples * len(num_clusters) + sum(num_clusters))  # labels and heads
        stored = (checkpoint.path / checkpoints.STATE).stat().st_size
        if least > stored:
            raise ValueError(
                f"{checkpoint.path} says that its run has {found.num_examples} images and {len(num_clusters)} heads, "
                f"which take {least} bytes or more, but its state has {stored}. {remedy}"
            )
        return found


def make_source(config, split=None, without=()):
    """The source of a config with its augmentation, of the training split or of another `split`.

    What makes the training set smaller or uneven is left out for another split. without: ids to leave out.
    """
    data = config.data
    if data.source == "digits":
        source = digits()
    elif data.source == "folder":
        source = from_folder(data.path, without=without)
    else:
        source = from_tfds(data.name, split or data.split, data.data_dir or None, without=without)
    if split is None:
        if data.examples_per_class:
            source = source.first_per_class(data.examples_per_class)
        source = imbalanced(source, data.imbalance, config.seed)
    return _augmented(source, config.augment)


def _augmented(source, augment):
    size, mean, std = augment.size or None, augment.mean or None, augment.std or None
    source = source.augmented(augment.policy, size, mean=mean, std=std, more=augment.more)
    if augment.small_crops:
        source = source.with_small_crops(augment.small_crops, augment.small_size, augment.small_area)
    return source


def make_model(config, source):
    """The compiled, untrained model of a config; the same weights every time. source: a Source, or a TrainingSet."""
    if not config.model.num_clusters:
        raise ValueError(
            "model.num_clusters is empty: as many clusters as the labels have. Give the labels with "
            "tools.retrain --labels=RUN_OR_FILE, or the number of clusters of each head."
        )
    keras.utils.set_random_seed(config.seed)
    usual = keras.config.dtype_policy()
    keras.config.set_dtype_policy(config.model.precision)
    try:
        options = {"width": config.model.width} if config.model.width else {}
        trunk = backbone(config.model.backbone, source.image_shape, **options)
        model = SelfLabelModel(
            trunk,
            config.model.num_clusters,
            source.num_examples,
            seed=config.seed,
            objectives=config.model.objectives,
            projection=Projection(config.model.projection, config.model.temperature or None, name="projection"),
            over_heads=config.model.over_heads,
            spread=config.label.spread,
        )
        optimizer = config.optimizer
        model.compile(CoupledSGD(optimizer.learning_rate, momentum=optimizer.momentum, l2=optimizer.l2))
    finally:
        keras.config.set_dtype_policy(usual)
    model.optimizer.build(model.trainable_variables)
    if config.augment.small_crops:
        size = config.augment.small_size
        model.small_features(tf.zeros((1, size, size, source.image_shape[2])))  # refused now rather than in `fit`
    return model


def make_labelling(config, source, scratch=None, labels=None):
    """The label passes of a config, as a callback.

    Args:
        scratch: folder they may put scores in while they run.
        labels: those of given_labels.read, if there are any.
    """
    label = config.label
    view_source = None
    if label.policy:
        view_source = _augmented(
            source, replace(config.augment, policy=label.policy, more="none", small_crops=0, small_size=0)
        )
    return SelfLabelCallback(
        source,
        label.num_relabels,
        labeller=label.labeller,
        schedule=label.schedule,
        heads=label.heads,
        lambda_=label.lambda_,
        views=label.views,
        batch_norm=label.batch_norm,
        rounding=label.rounding,
        tolerance=label.tolerance,
        max_passes=label.max_passes,
        warm_start=label.warm_start,
        cluster_weights=label.cluster_weights or None,
        seed=config.seed,
        storage=label.storage,
        scratch=scratch,
        labels=labels,
        view_source=view_source,
    )


def learning_rate(optimizer, epochs):
    """epoch -> learning rate, as the config's section `optimizer` says, for a training of so many epochs."""

    def at_epoch(epoch):
        if epoch < optimizer.warmup_epochs:
            share = (epoch + 1) / (optimizer.warmup_epochs + 1)
        elif optimizer.schedule == "cosine":
            past = (epoch - optimizer.warmup_epochs) / (epochs - optimizer.warmup_epochs)
            share = (1 + math.cos(math.pi * past)) / 2
        else:
            share = optimizer.drop_factor ** sum(epoch >= drop for drop in optimizer.drop_epochs)
        return optimizer.learning_rate * share

    return at_epoch


def steps_per_epoch(config, source):
    return -(-source.num_examples // config.batch_size)
