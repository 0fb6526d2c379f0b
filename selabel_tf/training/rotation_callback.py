"""How well turns are told apart on images that training has not seen, after every epoch."""

import keras
import numpy as np
import tensorflow as tf

from ..features import Extractor
from ..models.objectives import turned


class RotationCallback(keras.callbacks.Callback):
    """Logs accuracy and loss of the objective "rotation" on held-out images, each at its four turns.

    A large set is thinned out evenly, to 5,000 images. Nothing of training changes by it.
    """

    IMAGES, BATCH_SIZE = 5_000, 256

    def __init__(self, held_out):
        super().__init__()
        self.log = None  # to be set before training
        count = min(held_out.num_examples, self.IMAGES)
        self.held_out = held_out.subset(np.arange(count) * held_out.num_examples // count)
        self.extractor = None

    def on_epoch_end(self, epoch, logs=None):
        if self.extractor is None:
            self.extractor = Extractor(self._judge, self.model.distribute_strategy)
        rows = self.extractor(self.held_out.plain_batches(self.BATCH_SIZE), self.held_out.num_examples)
        accuracy, loss = map(float, rows.mean(axis=0))
        step = (epoch + 1) * self.params["steps"]
        self.log.append({"kind": "rotation", "step": step, "epoch": epoch + 1, "accuracy": accuracy, "loss": loss})
        self.log.scalars(step, {"evaluation/rotation_accuracy": accuracy, "evaluation/rotation_loss": loss})

    def _judge(self, images):
        """(accuracy, loss) [B, 2]."""
        rotation = self.model.objectives["rotation"]
        measured = rotation.judge(self.model.backbone(turned(images, rotation.turns), training=False), None)
        return tf.stack([measured["accuracy"], measured["loss"]], axis=1)
