"""Fine-tuning: a run's network and a new classifier, trained on labelled images. Also the same from random weights.

    model = finetune(run, train, SingleLabel(train, test), Recipe(SCHEDULES["cosine"]), seed=0)
    rows = task.judge(scores(model, test))

It is an ordinary keras.Model trained by `fit`. The order of images and their augmentation are functions of (seed,
epoch), so one that was cut short and goes on ends in the same bits as one that ran through.
"""

import math
from dataclasses import dataclass, replace

import keras
import tensorflow as tf

from ..evaluation import crops as crop_scores
from ..evaluation.probe_training import Schedule
from ..features import Extractor
from ..models.loss_scale import SharedLossScaleOptimizer
from . import distribution
from .assembly import make_model
from .classifier_network import with_classifier
from .sgd import CoupledSGD

WEIGHTS = ("trained", "random")


@dataclass(frozen=True)
class Cosine(Schedule):
    """The learning rate goes down to 0 in half a cosine, epoch by epoch: (1 + cos(pi * epoch / epochs)) / 2."""

    def at_epoch(self, epoch) -> float:
        return self.learning_rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2


# The paper gives no schedule for PASCAL VOC 2007. These are of the public code of DeepCluster, which the paper compares
# with: 80,000 and 150,000 steps of 16 images, halved every 5,000 and 20,000 steps, here in epochs of the 5,011 images.
SCHEDULES = {
    "cosine": Cosine(0.05, 1.0, (), epochs=30, batch_size=64, l2=5e-4),
    "steps": Schedule(0.05, 0.1, (18, 26), epochs=30, batch_size=64, l2=5e-4),
    "voc_fc6-8": Schedule(0.003, 0.5, tuple(range(16, 256, 16)), epochs=256, batch_size=16, l2=1e-6),
    "voc_all": Schedule(0.001, 0.5, tuple(range(64, 479, 64)), epochs=479, batch_size=16, l2=1e-6),
}


@dataclass(frozen=True)
class Recipe:
    """How to fine-tune. layers, batch_norm: as in classifier_network.

    weights: "trained", those of the run; "random", drawn anew: with all layers the network trained from scratch by
    its classes, with the classifier alone the baseline of random features.
    min_steps: few images make short epochs; there are as many more of them as it takes for so many steps.
    """

    schedule: Schedule
    layers: str = "all"
    batch_norm: str = "training"
    weights: str = "trained"
    min_steps: int = 0

    def __post_init__(self):
        if self.weights not in WEIGHTS:
            raise ValueError(f"weights={self.weights!r} is unknown. Use {' or '.join(WEIGHTS)}.")
        if self.weights == "random" and self.layers != "classifier" and self.batch_norm == "inference":
            raise ValueError(
                "batch_norm='inference' keeps the statistics of training, and random weights have none. "
                "Use batch_norm='training'."
            )

    def schedule_for(self, num_examples) -> Schedule:
        """The schedule for so many images, with min_steps."""
        schedule = self.schedule.for_examples(num_examples)
        needed = -(-self.min_steps // (num_examples // schedule.batch_size))
        return schedule.of_length(max(schedule.epochs, needed))


def finetune(run, train, task, recipe, *, seed=0, strategy=None, unfinished=None, save_every=1, callbacks=()):
    """The fine-tuned keras.Model: images -> scores [B, C].

    The short last batch of an epoch is left out, so that every step weighs the same on every number of replicas; the
    order changes with every epoch, so no image is left out for long.

    Args:
        run: a TrainedRun. train: a Source with its augmentation. task: with the targets of its images by index.
        recipe: a Recipe. seed: of the classifier, of the order and augmentation of images, and of random weights.
        strategy: a tf.distribute strategy; the current one by default.
        unfinished: an UnfinishedProbe to go on from, and to save to after every `save_every` epochs.
        callbacks: Keras callbacks, for a progress bar.
    """
    if len(task.targets) != train.num_examples:
        raise ValueError(
            f"The task has targets for {len(task.targets)} images and {train.name} has {train.num_examples}. "
            "Make the task from the images that are trained on."
        )
    strategy = strategy or tf.distribute.get_strategy()
    schedule = recipe.schedule_for(train.num_examples)
    batch = schedule.batch_size
    distribution.check_batch(batch, strategy.num_replicas_in_sync, batch)
    with strategy.scope():
        backbone = starting_backbone(run, recipe.weights, seed)
        model = with_classifier(
            backbone, task.num_classes, layers=recipe.layers, batch_norm=recipe.batch_norm, seed=seed
        )
        optimizer = CoupledSGD(schedule.learning_rate, momentum=0.9, l2=schedule.l2)
        model.compile(
            SharedLossScaleOptimizer(optimizer) if model.dtype_policy.name == "mixed_float16" else optimizer,
            loss=task.loss(),
            metrics=task.metrics(),
            jit_compile=False,  # XLA refuses op determinism
        )
        model.optimizer.build(model.trainable_variables)
    targets = tf.constant(task.targets)
    batches = train.train_batches(batch, seed=seed).take(train.num_examples // batch)
    state = model.variables + model.optimizer.variables
    done = 0 if unfinished is None else unfinished.restore(state)
    model.fit(
        batches.map(lambda images, index: (images, tf.gather(targets, index))),
        epochs=schedule.epochs,
        initial_epoch=min(done, schedule.epochs),
        shuffle=False,  # the order is that of `train`
        verbose=0,
        callbacks=[
            keras.callbacks.LearningRateScheduler(schedule.at_epoch),
            _EpochByEpoch(train, state, unfinished, save_every),
            *callbacks,
        ],
    )
    return model


def starting_backbone(run, weights, seed):
    """The run's own backbone, or the same drawn anew with `seed`."""
    if weights == "trained":
        return run.model.backbone
    return make_model(replace(run.config, seed=seed), run.training_set).backbone


def scores(model, source, *, crops=1, batch_size=256, on_batch=None):
    """float32 [N, C] for the images of a Source, as evaluation shows them; crops=10: averaged over ten crops."""
    forward, batches = lambda images: model(images, training=False), source.plain_batches
    if crops == 10:
        forward, batches, batch_size = crop_scores.averaged(forward), source.ten_crop_batches, max(1, batch_size // 10)
    elif crops != 1:
        raise ValueError(f"crops={crops} is not known. Choose 1 (as evaluation shows images) or 10.")
    return Extractor(forward, model.distribute_strategy)(batches(batch_size), source.num_examples, on_batch)


class _EpochByEpoch(keras.callbacks.Callback):
    """Says which epoch is to be shown, stops at a loss that is no number, keeps the state."""

    def __init__(self, source, state, unfinished, save_every):
        super().__init__()
        self.source, self.state, self.unfinished, self.save_every = source, state, unfinished, save_every

    def on_epoch_begin(self, epoch, logs=None):
        self.source.next_epoch = epoch  # Keras may have looked at a batch before

    def on_epoch_end(self, epoch, logs=None):
        if not math.isfinite(logs["loss"]):
            raise ValueError(
                f"The loss is {logs['loss']} after epoch {epoch + 1}: training has diverged. "
                "Use a smaller learning rate."
            )
        if self.unfinished is not None and (epoch + 1) % self.save_every == 0:
            self.unfinished.save(self.state, epoch + 1)
