"""What a SelfLabelModel learns: a list of objectives, each with a head, a loss and measures of its own.

    labels      -log p_h(label_h), mean or sum over heads, of the upright image
    rotation    -log p(turn), mean over the image at 0, 90, 180 and 270 degrees

    loss of an image = sum over the objectives

The network sees a batch once, at as many turns as the most demanding objective wants, upright images first:

    turned(images, 4) = [images, images turned once, twice, three times]      [4B, h, w, c]

so BatchNorm in training sees all of them, and the first B rows of the features are the upright images.
"""

import keras
import tensorflow as tf

from .heads import MultiHead

TURNS = 4
OVER_HEADS = ("mean", "sum")


def turned(images, turns):
    """Images [B, h, w, c], h = w, at 0 .. turns-1 quarter turns (anticlockwise): [turns * B, h, w, c], turn by turn."""
    if turns == 1:
        return images
    return tf.concat([tf.image.rot90(images, turn) for turn in range(turns)], axis=0)


def self_label_loss(labels, logits, over_heads="mean"):
    """Cross-entropy [B], mean or sum over heads, of labels [B, H] and a list of H logits [B, K_h]; in float32."""
    per_head = [
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels[:, head], tf.cast(scores, tf.float32))
        for head, scores in enumerate(logits)
    ]
    return tf.add_n(per_head) / (len(per_head) if over_heads == "mean" else 1)


def soft_label_loss(clusters, shares, logits, over_heads="mean"):
    """As self_label_loss, of labels that are spread: clusters and shares [B, H, m]."""
    per_head = []
    for head, scores in enumerate(logits):
        log_p = tf.nn.log_softmax(tf.cast(scores, tf.float32))
        chosen = tf.gather(log_p, clusters[:, head], batch_dims=1)  # [B, m]
        per_head.append(-tf.reduce_sum(shares[:, head] * chosen, axis=1))
    return tf.add_n(per_head) / (len(per_head) if over_heads == "mean" else 1)


class Labels:
    """Cross-entropy on the labels of the label store, hard or soft."""

    name, turns, measures = "labels", 1, ()

    def __init__(self, model):
        self.projection, self.heads, self.label_store = model.projection, model.heads, model.label_store
        self.over_heads = model.over_heads

    def judge(self, z, index, training=False):
        """Measure -> value per example [B], "loss" among them; z [B, D] of the upright images, index [B]."""
        logits = self.heads(self.projection(z, training=training))
        if self.label_store.spread > 1:
            return {"loss": soft_label_loss(*self.label_store.lookup_soft(index), logits, self.over_heads)}
        return {"loss": self_label_loss(self.label_store.lookup(index), logits, self.over_heads)}


class Rotation:
    """Which way up? Cross-entropy of a linear head that tells four turns apart (Gidaris et al., 2018)."""

    name, turns, measures = "rotation", TURNS, ("accuracy",)

    def __init__(self, model):
        height, width, _ = model.image_shape
        if height != width:
            raise ValueError(
                f"The objective 'rotation' turns images by 90 degrees and needs square ones, got {height} x {width}. "
                "Bring them to a square, e.g. augment.size=224, or leave the objective out."
            )
        self.head = MultiHead([TURNS], name="rotation_head", dtype=model.dtype_policy)
        self.head.build((None, model.feature_size))

    def judge(self, z, index, training=False):
        """As in Labels.judge, for z [4B, D], turn by turn; the mean over the four turns of an image."""
        logits = tf.cast(self.head(z)[0], tf.float32)  # [4B, 4]
        turn = tf.repeat(tf.range(TURNS), tf.shape(z)[0] // TURNS)  # 0 ... 0, 1 ... 1, 2 ... 2, 3 ... 3
        right = tf.argmax(logits, axis=1, output_type=tf.int32) == turn
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(turn, logits)
        return {"loss": _over_turns(losses), "accuracy": _over_turns(tf.cast(right, tf.float32))}


OBJECTIVES = {objective.name: objective for objective in (Labels, Rotation)}


def checked_objectives(names):
    """The names as a tuple, or a ValueError that says what is wrong with them."""
    names = (names,) if isinstance(names, str) else tuple(names)
    unknown = [name for name in names if name not in OBJECTIVES]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(
            f"objectives={names!r}: expected one or more of {', '.join(OBJECTIVES)}, each once, "
            'e.g. ("labels", "rotation").'
        )
    return names


def trackers(objectives):
    """Name -> keras Mean: the loss, that of each objective where there are several, and their own measures."""
    names = ["loss"]
    for objective in objectives:
        names += [f"{objective.name}_loss"] * (len(objectives) > 1)
        names += [f"{objective.name}_{measure}" for measure in objective.measures]
    return {name: keras.metrics.Mean(name=name) for name in names}


def judge(objectives, z, index, training=False):
    """Name -> value per example [B] for all of `trackers`; z as `turned` has ordered the images."""
    found = {}
    for objective in objectives:
        measured = objective.judge(z[: objective.turns * tf.shape(index)[0]], index, training)
        found |= {f"{objective.name}_{measure}": values for measure, values in measured.items()}
    return {"loss": tf.add_n([found[f"{objective.name}_loss"] for objective in objectives]), **found}


def _over_turns(values):
    return tf.reduce_mean(tf.reshape(values, [TURNS, -1]), axis=0)  # [4B] -> [B]
