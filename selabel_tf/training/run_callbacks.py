"""What `fit` leaves in the run folder while it runs: a record per epoch, nearest neighbours, checkpoints."""

import math
import time

import keras
import numpy as np

from ..evaluation import knn
from ..evaluation.figures import filters
from ..features import Extractor
from . import checkpoints


class LogCallback(keras.callbacks.Callback):
    """Writes metrics, learning rate, speed and the first layer's filters to the log, once an epoch.

    Seconds are by the clock since the record before, so that they add up to what training took, label passes,
    neighbours and checkpoints between its first step and its last included.

    Args:
        seconds: of a resumed epoch, those up to its checkpoint.
    """

    def __init__(self, log, num_examples, seconds=0.0):
        super().__init__()
        self.log, self.num_examples = log, num_examples
        self.earlier = seconds

    def on_train_begin(self, logs=None):
        self.written = time.perf_counter() - self.earlier

    def since_record(self) -> float:
        """Seconds since the last record of an epoch."""
        return time.perf_counter() - self.written

    def on_epoch_begin(self, epoch, logs=None):
        self.in_steps = 0.0
        self.first_batch = None

    def on_train_batch_begin(self, batch, logs=None):
        if self.first_batch is None:  # of a resumed epoch, not 0
            self.first_batch = batch
        self.begun = time.perf_counter()  # this callback stands behind the label passes: their time is not counted

    def on_train_batch_end(self, batch, logs=None):
        self.in_steps += time.perf_counter() - self.begun

    def on_epoch_end(self, epoch, logs=None):
        seen = self.num_examples * (1 - self.first_batch / self.params["steps"])
        seconds, self.written = self.since_record(), time.perf_counter()
        record = {
            "kind": "epoch",
            "step": (epoch + 1) * self.params["steps"],
            "epoch": epoch + 1,
            **{metric.name: float(logs[metric.name]) for metric in self.model.metrics},
            "learning_rate": float(np.asarray(self.model.optimizer.learning_rate)),
            "images_per_second": seen / self.in_steps,
            "seconds": seconds,
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
    """Saves the state of the run while it is good, and ends it when it is not any more or when that is asked for.

    A checkpoint is written after every `config.checkpoint_every` epochs and at the end, before and after every label
    pass, and wherever `config.checkpoint_steps` steps have gone by since the last. The loss is looked at after every
    step, before anything is saved; Keras has fetched it from the device anyway.

    Args:
        resumed: the checkpoint that the run goes on from, or None.
        facts: of the run, for every checkpoint.
        clock: () -> seconds since the last record of an epoch.
        interruption: an Interruption.
    """

    def __init__(self, folder, config, log, *, resumed, facts, clock, interruption):
        super().__init__()
        self.folder, self.config, self.log, self.clock = folder, config, log, clock
        self.facts, self.interruption = facts, interruption
        self.last = resumed

    def on_train_begin(self, logs=None):
        self.interruption.waits = True
        self.label_passes = self.last.facts["label_passes"] if self.last else 0
        if self.params["epochs"] == 0:  # random weights are a run, too
            self._save(0)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        steps = self.params["steps"]
        in_epoch = min(batch + 1, steps)  # the last of several steps per execution may lie beyond the end
        step = self.epoch * steps + in_epoch
        if not math.isfinite(logs["loss"]):
            self._diverged(step, f"The loss is {logs['loss']}")
        if in_epoch < steps and (self.interruption.asked or step - self._saved_step >= self.config.checkpoint_steps):
            self._save(step)  # at the end of an epoch its records come first
            self.interruption.leave()

    def on_epoch_end(self, epoch, logs=None):
        done = epoch + 1
        step = done * self.params["steps"]
        by_epoch = done % self.config.checkpoint_every == 0 or done == self.params["epochs"]
        if by_epoch or self.interruption.asked or step - self._saved_step >= self.config.checkpoint_steps:
            self._save(step)
        self.interruption.leave()

    def on_train_end(self, logs=None):
        self.interruption.waits = False

    def before_label_pass(self, number, step):
        """A label pass that is cut short is made again, and nothing else with it."""
        if step > self._saved_step:
            self._save(step)
        self.interruption.leave()

    def after_label_pass(self, label_pass):
        self.label_passes = label_pass.number + 1
        self._save(label_pass.step)

    @property
    def _saved_step(self):
        return self.last.facts["step"] if self.last else 0

    def _save(self, step):
        epoch, batch = divmod(step, self.params["steps"]) if step else (0, 0)
        place = {"epoch": epoch, "batch": batch, "step": step, "label_passes": self.label_passes}
        place["seconds"] = self.clock()
        try:
            self.last = checkpoints.save(self.folder, self.model, {**place, **self.log.position(), **self.facts})
        except checkpoints.NotFiniteError as error:
            self._diverged(step, f"The loss is finite, but {error}")

    def _diverged(self, step, what):
        rate = float(np.asarray(self.model.optimizer.learning_rate))
        good = "There is no checkpoint yet."
        if self.last:
            good = f"The last good checkpoint is {self.last.path}, after step {self.last.facts['step']}."
        raise ValueError(
            f"{what} at step {step} (epoch {(step - 1) // self.params['steps'] + 1}, learning rate {rate:g}): training "
            f"has diverged. {good} The same command would come to the same end: lower optimizer.learning_rate and "
            "start in a new folder."
        )
