"""Linear probes: how well does one linear classifier, put on a layer of a frozen network, tell the true classes?

    z_l = pooled features of layer l                     frozen, pooled_layers.py
    scores_l = W_l normalised(z_l) + b_l                 normalised: BatchNorm without scale and offset

There is one (W_l, b_l) per layer and nothing shared between them: the sum of their losses trains all of them at once
as each would be alone. BatchNorm's statistics are one per channel of a pooled map. W and b start at 0: the
problem is convex, so a random start would only add noise.

    probes = Probes(pooled_layers.of_alexnet(backbone), num_classes)
    probe_training.by_sgd(probes, source, schedule, optimizer)         or by_lbfgs(probes, stored)
    rows = evaluate(probes, test_source, crops=10)
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ..features import extract
from . import crops as crop_scores

COLUMNS_AT_ONCE = 1024


class Probes:
    """The classifiers of all taps of `pooled` (a PooledLayers).

    heads: features [B, D] of all taps -> {layer: logits [B, C]}.
    network: images [B, h, w, c] -> the same, through the frozen trunk, which never trains.
    """

    def __init__(self, pooled, num_classes):
        self.taps, self.trunk, self.num_classes = pooled.taps, pooled.trunk, num_classes
        self.num_features = pooled.num_features
        inputs = keras.Input((pooled.num_features,), name="features")
        logits = {}
        for tap, columns in self.columns():
            x = layers.Reshape(tap.shape, name=f"{tap.layer}_map")(inputs[:, columns])
            x = layers.BatchNormalization(
                momentum=0.9, epsilon=1e-5, center=False, scale=False, name=f"{tap.layer}_normalised"
            )(x)
            x = layers.Flatten(name=f"{tap.layer}_flat")(x)
            logits[tap.layer] = layers.Dense(num_classes, kernel_initializer="zeros", name=tap.layer)(x)
        self.heads = keras.Model(inputs, logits, name="probes")
        images = keras.Input(pooled.trunk.input.shape[1:], name="image")
        self.network = keras.Model(images, self.heads(pooled.trunk(images, training=False)), name="probed_network")

    def columns(self):
        """(tap, slice): where the features of each tap lie in a row of all."""
        start = 0
        for tap in self.taps:
            yield tap, slice(start, start + tap.num_features)
            start += tap.num_features

    def features(self, images):
        """[B, D] of all taps, for features.Extractor."""
        return self.trunk(images, training=False)

    def logits(self, images):
        """{layer: [B, C]}, with BatchNorm as learnt."""
        return self.network(images, training=False)

    def fix_statistics(self, features):
        """Gives BatchNorm the exact statistics of all of `features` [N, D] for good, in place of running ones.

        It then standardises as scikit-learn's StandardScaler does, without an epsilon: that of the recipe would damp
        features that vary little. Channels that do not vary at all become 0.
        """
        features = np.asarray(features)
        for tap, columns in self.columns():
            mean, variance = _moments(features[:, columns])
            if not np.isfinite(variance).all():
                raise ValueError(f"The features of {tap.layer} hold NaN or infinity. Has the network diverged?")
            positions = mean.reshape(-1, tap.shape[-1])  # [positions of the map, channels]
            # Var over rows and positions = mean over positions of Var + Var over positions of the means
            spread = variance.reshape(-1, tap.shape[-1]).mean(axis=0) + positions.var(axis=0)
            norm = self.heads.get_layer(f"{tap.layer}_normalised")
            norm.moving_mean.assign(positions.mean(axis=0))
            varies = spread > 1e-12 * norm.moving_mean.numpy() ** 2
            norm.moving_variance.assign(np.where(varies, spread, 1.0))
            norm.epsilon = 0.0
            norm.trainable = False  # in Keras a BatchNorm that is not trained uses its statistics as they are

    def normalised(self, features, layer):
        """The rows [N, D_l] that the classifier of `layer` sees, of features [N, D]; after fix_statistics."""
        tap, columns = next((tap, columns) for tap, columns in self.columns() if tap.layer == layer)
        norm = self.heads.get_layer(f"{layer}_normalised")
        repeats = tap.num_features // tap.shape[-1]
        mean = np.tile(np.float32(norm.moving_mean), repeats)
        deviation = np.tile(np.sqrt(np.float32(norm.moving_variance) + np.float32(norm.epsilon)), repeats)
        return (features[:, columns] - mean) / deviation


def evaluate(probes, source, *, crops=1, batch_size=128, on_batch=None) -> list[dict]:
    """One row per layer: layer, features, pooling, top1, top5 (shares of 1), on the images and classes of `source`.

    Args:
        source: a Source: plain_batches or ten_crop_batches, num_examples, classes.
        crops: 1 for the image as evaluation shows it, 10 for the average over ten crops.
        on_batch: called with the number of images done.
    """
    if crops == 1:
        forward, batches = probes.logits, source.plain_batches(batch_size)
    elif crops == 10:
        forward, batches = crop_scores.averaged(probes.logits), source.ten_crop_batches(max(1, batch_size // 10))
    else:
        raise ValueError(f"crops={crops} is not known. Choose 1 (as evaluation shows images) or 10.")
    best = min(5, probes.num_classes)

    def ranking(images):
        # float32 rows are what extraction makes; it holds class numbers exactly up to 2^24
        scores = forward(images)
        ranked = [tf.math.top_k(scores[tap.layer], best).indices for tap in probes.taps]
        return tf.cast(tf.concat(ranked, axis=1), tf.float32)  # [B, H * best]

    rows = extract(ranking, batches, source.num_examples, on_batch)
    hits = rows.reshape(len(rows), len(probes.taps), best) == np.asarray(source.classes)[:, None, None]
    return [
        {
            "layer": tap.layer,
            "features": tap.num_features,
            "pooling": tap.pooling,
            "top1": float(hits[:, number, 0].mean()),
            "top5": float(hits[:, number].any(axis=1).mean()),
        }
        for number, tap in enumerate(probes.taps)
    ]


def count_classes(train, test) -> int:
    """How many classes the probes have to tell apart; refuses sets whose classes do not mean the same.

    train, test: with name, classes [N] and class_names (or None).
    """
    names = train.class_names, test.class_names
    if None not in names and list(names[0]) != list(names[1]):
        raise ValueError(
            f"{train.name} has {len(names[0])} classes ({_some(names[0])}) and {test.name} has {len(names[1])} "
            f"({_some(names[1])}). Train and test images must have the same classes, in the same order."
        )
    known = np.unique(train.classes)
    if len(known) < 2:
        raise ValueError(f"All images of {train.name} are of one class: there is nothing to tell apart.")
    strange = np.setdiff1d(test.classes, known)
    if len(strange):
        shown = [train.class_names[c] if train.class_names and c < len(train.class_names) else c for c in strange]
        raise ValueError(
            f"{test.name} has images of {len(strange)} classes that {train.name} has none of ({_some(shown)}). "
            "No classifier can learn those: choose train and test images of the same classes."
        )
    return int(known.max()) + 1


def held_out_fifth(classes, *, seed=0):
    """(rows to train on, rows to test on) of `classes` [N], sorted: of each class a random fifth is held out.

    A fifth is rounded, and at least 1 where a class has 2 images or more.
    """
    classes = np.asarray(classes)
    rng = np.random.default_rng(seed)
    held = []
    for value in np.unique(classes):
        rows = rng.permutation(np.flatnonzero(classes == value))
        held.append(rows[: max(round(len(rows) / 5), int(len(rows) > 1))])
    held = np.sort(np.concatenate(held))
    if len(held) == 0:
        raise ValueError(f"{len(classes)} images, none of whose classes has two: none can be held out for testing.")
    return np.setdiff1d(np.arange(len(classes)), held), held


def _moments(rows):
    """(means, variances) of the columns of [N, D] in float64, a block of columns at a time."""
    blocks = [rows[:, start : start + COLUMNS_AT_ONCE] for start in range(0, rows.shape[1], COLUMNS_AT_ONCE)]
    means = [block.mean(axis=0, dtype=np.float64) for block in blocks]
    variances = [block.var(axis=0, dtype=np.float64) for block in blocks]
    return np.concatenate(means), np.concatenate(variances)


def _some(names):
    names = [str(name) for name in names]
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
