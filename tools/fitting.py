"""What the tools that train a classifier on a run's network share: how to train, on which devices, and the progress."""

from dataclasses import asdict, replace

import keras
from absl import flags

from selabel_tf.data.augment import POLICIES
from selabel_tf.training import distribution
from selabel_tf.training.classifier_network import BATCH_NORM
from selabel_tf.training.finetuning import SCHEDULES, Recipe
from tools import console

LAYERS = flags.DEFINE_string(
    "layers",
    "all",
    "What trains besides the classifier: all; classifier, for nothing else; a number of last blocks; or the name of "
    "the block to begin with, e.g. fc6. The blocks before it run as in inference, BatchNorm and dropout included.",
)
BATCH_NORM_MODE = flags.DEFINE_enum(
    "batch_norm",
    "training",
    list(BATCH_NORM),
    "BatchNorm of layers that train. training: by the batch; inference: left as the run has it.",
)
SCHEDULE = flags.DEFINE_enum(
    "schedule",
    "cosine",
    list(SCHEDULES),
    "cosine: 30 epochs of batch 64, from 0.05 to 0; steps: 0.05 divided by 10 at 18 and 26; voc_fc6-8, voc_all: for "
    "AlexNet on PASCAL VOC 2007, 256 and 479 epochs of batch 16, from 0.003 and 0.001 halved every 16 and 64 epochs.",
)
EPOCHS = flags.DEFINE_integer(
    "epochs",
    None,
    "By default the schedule's. Drops come after the same shares of training. More of them where --min_steps asks for "
    "it.",
    1,
)
MIN_STEPS = flags.DEFINE_integer(
    "min_steps", 500, "Few images make short epochs: there are more of them until training has so many steps.", 0
)
BATCH = flags.DEFINE_integer("batch_size", None, "By default the schedule's, or all images if fewer.", 1)
LEARNING_RATE = flags.DEFINE_float("learning_rate", None, "At the start; by default the schedule's.", 0.0)
L2 = flags.DEFINE_float("l2", None, "Coupled weight decay; by default the schedule's.", 0.0)
AUGMENT = flags.DEFINE_enum(
    "augment", None, list(POLICIES), "How training images are augmented; by default as in the run."
)
CROPS = flags.DEFINE_enum("crops", "1", ["1", "10"], "Crops of each test image, whose scores are averaged.")
SAVE_EVERY = flags.DEFINE_integer(
    "save_every", 1, "Epochs between states to go on from; each is twice as large as the network.", 1
)
DEVICES = flags.DEFINE_string(
    "devices", None, "Devices to train on, e.g. cpu or gpu:0,gpu:1. By default all GPUs, or the CPU if there is none."
)


def recipe(weights="trained", learning_rate=None) -> Recipe:
    """The Recipe of the flags. learning_rate: in place of theirs."""
    schedule = SCHEDULES[SCHEDULE.value]
    if EPOCHS.value is not None:
        schedule = schedule.of_length(EPOCHS.value)
    rate = LEARNING_RATE.value if learning_rate is None else learning_rate
    given = {"learning_rate": rate, "batch_size": BATCH.value, "l2": L2.value}
    schedule = replace(schedule, **{name: value for name, value in given.items() if value is not None})
    return Recipe(schedule, LAYERS.value, BATCH_NORM_MODE.value, weights, MIN_STEPS.value)


def checked(recipe, num_examples):
    """`recipe`, if so many images fill a batch of --batch_size; without that flag a batch may be smaller."""
    recipe.schedule.for_examples(num_examples, BATCH.value)
    return recipe


def settings(recipe, num_examples):
    """What a result has to say of a recipe, for so many images."""
    return {
        "weights": recipe.weights,
        "layers": recipe.layers,
        "batch_norm": recipe.batch_norm,
        "schedule": SCHEDULE.value,
        **asdict(recipe.schedule_for(num_examples)),
        "min_steps": recipe.min_steps,
    }


def told(recipe, num_examples):
    """What is trained, and for how long, in words for a person."""
    schedule = recipe.schedule_for(num_examples)
    epochs = f"{schedule.epochs} epoch" + "s" * (schedule.epochs != 1)
    longer = f" (for --min_steps={recipe.min_steps})" if schedule.epochs > recipe.schedule.epochs else ""
    return f"{recipe.weights} weights, training {parts(recipe.layers)}: {epochs}{longer} of batch {schedule.batch_size}"


def parts(layers):
    """--layers in words."""
    if layers.isdigit():
        return "the last block" if layers == "1" else f"the last {layers} blocks"
    return {"all": "all layers", "classifier": "the classifier alone"}.get(layers, f"{layers} and what follows")


def strategy():
    return distribution.strategy(DEVICES.value)


class Narrator(keras.callbacks.Callback):
    """A progress bar over all epochs, with the running loss and, of single labels, accuracy."""

    def __init__(self, label="fine-tuning"):
        super().__init__()
        self.label, self.progress = label, None

    def on_epoch_begin(self, epoch, logs=None):
        self.before = epoch * self.params["steps"]
        if self.progress is None:
            self.progress = console.Progress(
                self.params["epochs"] * self.params["steps"], self.label, start=self.before
            )

    def on_train_batch_end(self, batch, logs=None):
        self.progress.update(self.before + batch + 1, **logs)

    def on_train_end(self, logs=None):
        if self.progress is not None:
            self.progress.close()
