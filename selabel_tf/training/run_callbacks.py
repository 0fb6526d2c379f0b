"""What `fit` leaves in the run folder while it runs: a record per epoch, and checkpoints."""

import math
import time
from dataclasses import asdict

import keras
import numpy as np

from ..config import config_hash
from ..evaluation.figures import filters
from . import checkpoints
from .assembly import TrainingSet


class LogCallback(keras.callbacks.Callback):
    """Writes loss, learning rate, images per second and the first layer's filters to the run's log, once an epoch.

    A loss that is no number any more ends the run before such weights can replace the last good checkpoint.
    """

    def __init__(self, log, num_examples):
        super().__init__()
        self.log, self.num_examples = log, num_examples

    def on_epoch_begin(self, epoch, logs=None):
        self.seconds = 0.0

    def on_train_batch_begin(self, batch, logs=None):
        self.begun = time.perf_counter()  # this callback stands behind the label passes: their time is not counted

    def on_train_batch_end(self, batch, logs=None):
        self.seconds += time.perf_counter() - self.begun

    def on_epoch_end(self, epoch, logs=None):
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            raise ValueError(
                f"The loss is {loss} after epoch {epoch + 1}: training has diverged. Lower optimizer.learning_rate "
                "and start again in a new folder; the checkpoints so far are kept."
            )
        record = {
            "kind": "epoch",
            "step": (epoch + 1) * self.params["steps"],
            "epoch": epoch + 1,
            "loss": loss,
            "learning_rate": float(np.asarray(self.model.optimizer.learning_rate)),
            "images_per_second": self.num_examples / self.seconds,
        }
        self.log.append(record)
        scalars = {name: record[name] for name in ("loss", "learning_rate", "images_per_second")}
        self.log.scalars(record["step"], {f"training/{name}": value for name, value in scalars.items()})
        kernel = next((w for w in self.model.backbone.weights if len(w.shape) == 4), None)
        if kernel is not None:
            self.log.image(record["step"], "first_layer", filters(kernel.numpy())[None])


class CheckpointCallback(keras.callbacks.Callback):
    """Saves the state of the run every `config.checkpoint_every` epochs and at the end."""

    def __init__(self, folder, config, source, log):
        super().__init__()
        self.folder, self.config, self.log = folder, config, log
        self.training_set = asdict(TrainingSet.of(source))

    def on_epoch_end(self, epoch, logs=None):
        done = epoch + 1
        if done % self.config.checkpoint_every == 0 or done == self.params["epochs"]:
            facts = {
                "epoch": done,
                "step": done * self.params["steps"],
                "num_records": self.log.num_records,
                "config_hash": config_hash(self.config),
                "training_set": self.training_set,
            }
            checkpoints.save(self.folder, self.model, facts)
