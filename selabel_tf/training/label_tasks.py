"""What a network is fine-tuned for: one class for each image, or several at once. Targets, loss and judgement of each.

    single label     cross-entropy of the softmax                        judged by top-1 and top-5 accuracy
    multi-label      sum over classes of the sigmoid's cross-entropy     judged by mean average precision
                     -y log s(x) - (1 - y) log(1 - s(x)), ignored classes left out

A task knows the targets of the training images, to be looked up by index, and those of the test images, to judge by.
"""

import keras
import numpy as np
import tensorflow as tf

from ..evaluation import accuracy, average_precision, probes

IGNORED = -1.0


class SingleLabel:
    """Images with one class each. train, test: with name, classes [N] and class_names, as a Source has them."""

    headline = "top1"

    def __init__(self, train, test):
        for source in (train, test):
            if source.classes is None or np.ndim(source.classes) != 1:
                shape = "none" if source.classes is None else f"an array {np.shape(source.classes)}"
                raise ValueError(
                    f"The classes of {source.name} are {shape}; a single-label task takes one class for each image. "
                    "Images that show several classes are a MultiLabel task."
                )
        self.num_classes = probes.count_classes(train, test)
        self.class_names = None if train.class_names is None else tuple(train.class_names)
        self.targets = np.asarray(train.classes, np.int64)  # [N]
        self.expected = np.asarray(test.classes)

    def loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self):
        return [keras.metrics.SparseCategoricalAccuracy(name="top1")]

    def judge(self, scores) -> list[dict]:
        """One row: top1, and top5 where there are more than five classes."""
        top5 = accuracy.top_k(scores, self.expected, 5) if self.num_classes > 5 else None
        return [{"top1": accuracy.top_k(scores, self.expected, 1), "top5": top5}]


class MultiLabel:
    """Images with any number of classes each. train, test: data.multi_label.MultiLabels."""

    headline = "ap11"

    def __init__(self, train, test):
        for labels in (train, test):
            if getattr(labels, "present", None) is None:
                raise ValueError(
                    f"{getattr(labels, 'name', type(labels).__name__)} has no lists of classes; a multi-label task "
                    "takes MultiLabels. Images with one class each are a SingleLabel task."
                )
        if train.class_names != test.class_names:
            raise ValueError(
                f"The images to train on have {len(train.class_names)} classes ({_some(train.class_names)}) and those "
                f"to test on {len(test.class_names)} ({_some(test.class_names)}). They must be the same, in the same "
                "order."
            )
        self.num_classes = len(train.class_names)
        self.class_names = train.class_names
        self.targets = np.where(train.ignored, IGNORED, train.present).astype(np.float32)  # [N, C]
        self.expected = test

    def loss(self):
        return SigmoidCrossEntropy()

    def metrics(self):
        return []

    def judge(self, scores) -> list[dict]:
        """A row for the mean and one for each class, as average_precision.of_classes makes them."""
        return average_precision.of_classes(scores, self.expected.present, self.expected.ignored, self.class_names)


@keras.saving.register_keras_serializable(package="selabel_tf")
class SigmoidCrossEntropy(keras.losses.Loss):
    """Summed over classes, averaged over images. targets [B, C]: 1 present, 0 absent, IGNORED not counted."""

    def __init__(self, name="sigmoid_cross_entropy", **options):
        super().__init__(name=name, **options)

    def call(self, targets, scores):
        counted = tf.cast(targets != IGNORED, scores.dtype)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets * counted, logits=scores)
        return tf.reduce_sum(losses * counted, axis=-1)  # [B]


def _some(names):
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
