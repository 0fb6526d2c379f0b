"""Two ways to train the probes: stochastic gradient descent by `fit`, and L-BFGS to the minimum.

Gradient descent reads either images, anew in every epoch through the frozen trunk (needed when they are augmented), or
features that were extracted once. Both come as a source does: `train_batches` of (x, index), and `next_epoch`.
"""

import math
from dataclasses import dataclass, replace

import keras
import numpy as np
import tensorflow as tf

from ..untuned import untuned
from . import logistic
from .probe_state import UnfinishedProbe


@dataclass(frozen=True)
class Schedule:
    """The learning rate is times `factor` at the start of each of the epochs `drops`; l2: coupled weight decay."""

    learning_rate: float
    factor: float
    drops: tuple[int, ...]
    epochs: int
    batch_size: int
    l2: float

    def at_epoch(self, epoch) -> float:
        return self.learning_rate * self.factor ** sum(epoch >= drop for drop in self.drops)

    def of_length(self, epochs) -> "Schedule":
        """The same in more or fewer epochs: drops come after the same shares of training."""
        if epochs < 1:
            raise ValueError(f"epochs={epochs} trains nothing. Use 1 or more.")
        drops = tuple(max(1, round(drop * epochs / self.epochs)) for drop in self.drops)
        return replace(self, epochs=epochs, drops=drops)

    def for_examples(self, num_examples, batch_size=None) -> "Schedule":
        """The same for so many examples. Without a `batch_size` of one's own a batch is at most all of them."""
        if batch_size is None:
            batch_size = min(self.batch_size, num_examples)
        if not 1 <= batch_size <= num_examples:
            raise ValueError(
                f"batch_size={batch_size}, but there are {num_examples} images to train on. Use 1 to {num_examples}."
            )
        return replace(self, batch_size=batch_size)


SCHEDULES = {
    "paper": Schedule(0.01, 0.2, (5, 15, 25), epochs=36, batch_size=192, l2=1e-5),
    "code": Schedule(0.01, 0.1, (10, 20, 30), epochs=36, batch_size=192, l2=1e-5),  # the authors' AlexNet code
    "resnet": Schedule(0.1, 0.1, (85, 128), epochs=146, batch_size=1024, l2=0.0),  # the authors' ResNet code
}


class StoredFeatures:
    """Features [N, D] with classes [N], shown in random order as a Source shows its images.

    The order of an epoch is a function of (seed, epoch).
    """

    def __init__(self, features, classes):
        self.features, self.classes = features, np.asarray(classes)
        self.num_examples = len(features)
        self.next_epoch = 0

    def train_batches(self, batch_size, *, seed=0) -> tf.data.Dataset:
        def batches():
            order = np.random.default_rng([seed, self.next_epoch]).permutation(self.num_examples)
            self.next_epoch += 1
            for start in range(0, self.num_examples, batch_size):
                rows = order[start : start + batch_size]
                yield self.features[rows], rows

        signature = (
            tf.TensorSpec([None, self.features.shape[1]], tf.float32),
            tf.TensorSpec([None], tf.int64),
        )
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        count = -(-self.num_examples // batch_size)
        return untuned(dataset.apply(tf.data.experimental.assert_cardinality(count)).prefetch(2))


def by_sgd(probes, examples, schedule, optimizer, *, seed=0, unfinished=None, callbacks=()):
    """Trains all probes with `fit`; returns its History: loss (the sum over layers), <layer>_top1 and <layer>_top5.

    Stored features are normalised by the exact statistics of all of them, images by BatchNorm's running ones. The short
    last batch of an epoch is left out: in running statistics it would weigh as much as a full one. The order
    changes with every epoch, so no example is left out for long.

    Args:
        examples: a Source (its images go through the trunk in every epoch), or StoredFeatures.
        schedule: a Schedule. optimizer: a Keras optimizer; its learning rate is set by the schedule.
        unfinished: an UnfinishedProbe to go on from and to save to after every epoch.
        callbacks: Keras callbacks, for a progress bar.
    """
    batch = schedule.for_examples(examples.num_examples, schedule.batch_size).batch_size
    batches = examples.train_batches(batch, seed=seed).take(examples.num_examples // batch)
    if isinstance(examples, StoredFeatures):
        probes.fix_statistics(examples.features)
        model = probes.heads
    else:
        model = probes.network
    classes, names = tf.constant(examples.classes, tf.int64), [tap.layer for tap in probes.taps]

    def with_classes(x, index):
        of_batch = tf.gather(classes, index)
        return x, {name: of_batch for name in names}

    model.compile(
        optimizer,
        loss={name: keras.losses.SparseCategoricalCrossentropy(from_logits=True) for name in names},
        metrics={name: _accuracies() for name in names},
        jit_compile=False,  # XLA refuses op determinism
    )
    optimizer.build(model.trainable_variables)
    state = probes.heads.variables + optimizer.variables
    done = 0 if unfinished is None else unfinished.restore(state)
    return model.fit(
        batches.map(with_classes),
        epochs=schedule.epochs,
        initial_epoch=min(done, schedule.epochs),
        shuffle=False,  # the order is that of `examples`
        verbose=0,
        callbacks=[
            keras.callbacks.LearningRateScheduler(schedule.at_epoch),
            _EpochByEpoch(examples, state, unfinished),
            *callbacks,
        ],
    )


def by_lbfgs(probes, stored, *, l2=1e-4, tolerance=1e-4, max_iterations=1000, unfinished=None, on_iteration=None):
    """Puts into each probe the minimum that logistic.solve finds; {layer: LogisticResult} of those solved now.

    Args:
        stored: StoredFeatures; BatchNorm gets their exact statistics.
        unfinished: an UnfinishedProbe to go on from and to save to after every layer.
        on_iteration: called with (layer, number of iterations done on it).
    """
    probes.fix_statistics(stored.features)
    state = probes.heads.variables
    done = 0 if unfinished is None else unfinished.restore(state)
    results = {}
    for number, tap in enumerate(probes.taps):
        if number < done:
            continue
        result = logistic.solve(
            probes.normalised(stored.features, tap.layer),
            stored.classes,
            probes.num_classes,
            l2=l2,
            tolerance=tolerance,
            max_iterations=max_iterations,
            on_iteration=on_iteration and (lambda count, layer=tap.layer: on_iteration(layer, count)),
        )
        probes.heads.get_layer(tap.layer).set_weights([result.weights, result.bias])
        results[tap.layer] = result
        if unfinished is not None:
            unfinished.save(state, number + 1)
    return results


class _EpochByEpoch(keras.callbacks.Callback):
    """Says which epoch is to be shown, stops at a loss that is no number, keeps the state."""

    def __init__(self, examples, state, unfinished: UnfinishedProbe | None):
        super().__init__()
        self.examples, self.state, self.unfinished = examples, state, unfinished

    def on_epoch_begin(self, epoch, logs=None):
        self.examples.next_epoch = epoch  # Keras may have looked at a batch before

    def on_epoch_end(self, epoch, logs=None):
        if not math.isfinite(logs["loss"]):
            raise ValueError(
                f"The probes' loss is {logs['loss']} after epoch {epoch + 1}: their training has diverged. "
                "Are the network's features finite? A smaller learning rate, or L-BFGS, may help."
            )
        if self.unfinished is not None:
            self.unfinished.save(self.state, epoch + 1)


def _accuracies():
    return [
        keras.metrics.SparseCategoricalAccuracy(name="top1"),
        keras.metrics.SparseTopKCategoricalAccuracy(5, name="top5"),
    ]
