"""What `fit` leaves in the run folder while it runs: a record per epoch, nearest neighbours, checkpoints."""

import math
import time
from dataclasses import asdict

import keras
import numpy as np

from ..config import config_hash
from ..evaluation import knn
from ..evaluation.figures import filters
from ..features import Extractor
from . import checkpoints
from .assembly import TrainingSet


class LogCallback(keras.callbacks.Callback):
    """Writes metrics, learning rate, images per second and the first layer's filters to the run's log, once an epoch.

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
            **{metric.name: float(logs[metric.name]) for metric in self.model.metrics},
            "learning_rate": float(np.asarray(self.model.optimizer.learning_rate)),
            "images_per_second": self.num_examples / self.seconds,
        }
        self.log.append(record)
        scalars = {name: value for name, value in record.items() if name not in ("kind", "step", "epoch")}
        self.log.scalars(record["step"], {f"training/{name}": value for name, value in scalars.items()})
        kernel = next((w for w in self.model.backbone.weights if len(w.shape) == 4), None)
        if kernel is not None:
            self.log.image(record["step"], "first_layer", filters(kernel.numpy())[None])


class KnnCallback(keras.callbacks.Callback):
    """Classifies by nearest neighbours after every n-th epoch: how good are the features by now?

    Large sets are thinned out evenly, to 20,000 neighbours and 10,000 images to classify; without test images each
    training image is classified by the others. Nothing of training changes by it.
    """

    BANK, QUERIES, BATCH_SIZE = 20_000, 10_000, 256

    def __init__(self, train, test, *, every, k, sigma):
        super().__init__()
        for source in (train, test):
            if source is not None and source.classes is None:
                raise ValueError(
                    f"evaluation.knn_every={every} compares with true classes, and {source.name} has none. "
                    "Leave it at 0."
                )
        self.log = None  # to be set before training
        self.every, self.options = every, {"k": k, "sigma": sigma}
        self.train, self.test = _thinned(train, self.BANK), test and _thinned(test, self.QUERIES)
        self.extractor = None

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every:
            return
        if self.extractor is None:
            backbone = self.model.backbone
            self.extractor = Extractor(lambda images: backbone(images, training=False), self.model.distribute_strategy)
        bank = self._features(self.train)
        if self.test is None:
            accuracy = knn.leave_one_out_accuracy(bank, self.train.classes, **self.options)
        else:
            queries = self._features(self.test)
            accuracy = knn.knn_accuracy(bank, self.train.classes, queries, self.test.classes, **self.options)
        step = (epoch + 1) * self.params["steps"]
        record = {"kind": "knn", "step": step, "epoch": epoch + 1, "accuracy": float(accuracy), **self.options}
        self.log.append(record)
        self.log.scalars(step, {"evaluation/knn": record["accuracy"]})

    def _features(self, source):
        return self.extractor(source.plain_batches(self.BATCH_SIZE), source.num_examples)


def _thinned(source, most):
    """At most `most` examples of a source, evenly spread."""
    if source.num_examples <= most:
        return source
    return source.subset(np.arange(most) * source.num_examples // most)


class CheckpointCallback(keras.callbacks.Callback):
    """Saves the state of the run every `config.checkpoint_every` epochs and at the end; at once if there are none."""

    def __init__(self, folder, config, source, log):
        super().__init__()
        self.folder, self.config, self.log = folder, config, log
        self.training_set = asdict(TrainingSet.of(source))

    def on_train_begin(self, logs=None):
        if self.params["epochs"] == 0:  # random weights are a run, too
            self._save(0)

    def on_epoch_end(self, epoch, logs=None):
        done = epoch + 1
        if done % self.config.checkpoint_every == 0 or done == self.params["epochs"]:
            self._save(done)

    def _save(self, done):
        facts = {
            "epoch": done,
            "step": done * self.params["steps"],
            "num_records": self.log.num_records,
            "config_hash": config_hash(self.config),
            "training_set": self.training_set,
        }
        checkpoints.save(self.folder, self.model, facts)
