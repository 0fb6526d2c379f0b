"""A label pass: the whole training set through the network, then new labels for some of its heads.

    features  training set -> Z [N, D], once per view
    scores    Z, head h -> log_p [N, K_h], the mean over views of the head's log-softmax
    sinkhorn  log_p -> log_alpha [K_h]
    rounding  lambda * log_p + log_alpha -> labels [N]

One head at a time, so the scores take N * K_h numbers and never N * H * K; `storage` decides where those live. Under a
strategy the row blocks are dealt out to its devices, and only sums over rows meet.

K-means on the features may take the place of the last two lines. Labels that are given, the true classes or those that
another network has found, need none of it: they are put into the store, and no image is looked at.
"""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from ..features import Extractor
from . import kmeans
from .rounding import balanced_labels, hard_labels, soft_labels
from .sinkhorn import SinkhornResult, solve
from .storage import (
    NO_SCORES,
    HeadScores,
    available_disk,
    available_gpu_memory,
    available_memory,
    plan_storage,
    score_devices,
)

ROUNDINGS = {"argmax": hard_labels, "balanced": balanced_labels}
BATCH_NORM = ("training", "inference")
LABELLERS = ("sinkhorn", "kmeans", "given")


@dataclass(frozen=True)
class HeadRecord:
    """What a label pass did to one head: E(p, q) is the mean cross-entropy of the labels q under p.

    Where labels are given the network is not asked: predictions and objectives are None.
    """

    head: int
    labels_before: np.ndarray  # int32 [N]
    labels_after: np.ndarray  # int32 [N]
    predictions: np.ndarray | None  # int32 [N], the head's own: argmax of p
    objective_before: float | None
    objective_after: float | None
    solution: SinkhornResult | None  # None where no transport problem was solved
    renumbered: bool  # cluster k is another one than before: the head has to begin anew


class Relabeller:
    """Gives the training set of a SelfLabelModel new labels.

    Args:
        model: a SelfLabelModel (its backbone, heads and label store are used).
        source: the training images; has num_examples and view_batches(batch_size, position=, seed=).
        labeller: "sinkhorn"; "kmeans" on the features, averaged over views; or "given".
            The latter two leave alone what only Sinkhorn has: lambda_, rounding and all that follows from them.
        lambda_: sharpness of the transport plan.
        views: augmented views of every image, over which log-probabilities are averaged.
        batch_norm: "training" (statistics of the batch, dropout on, as the authors' code) or "inference".
        rounding: "argmax" of the plan, or "balanced": cluster sizes exact to one example.
        tolerance: marginal error (L1) at which a solve has converged.
        max_passes: readings of the scores after which a solve gives up.
        warm_start: start from the scalings that the head's previous pass ended with.
        cluster_weights: wanted share of each cluster, up to a factor; uniform if None.
        batch_size: images per forward pass.
        seed: of the order and the augmentation of the views.
        storage: where scores live, a kind of labelling.storage, "auto": the fastest that fits, or "exact": the fastest
            that fits and gives the same bits as any other. `plan` says which.
        scratch: folder for storage on disk; without one there is none.
        labels: what the labeller "given" gives, int [N, H]; None for the classes of the source, to every head.
        view_source: the same images as label passes are to see them, e.g. source.augmented("flip"); None: as training
            sees them.
    """

    def __init__(
        self,
        model,
        source,
        *,
        labeller="sinkhorn",
        lambda_=25.0,
        views=1,
        batch_norm="training",
        rounding="argmax",
        tolerance=1e-3,
        max_passes=1000,
        warm_start=True,
        cluster_weights=None,
        batch_size=256,
        seed=0,
        storage="auto",
        scratch=None,
        labels=None,
        view_source=None,
    ):
        if labeller not in LABELLERS:
            raise ValueError(f"Unknown labeller {labeller!r}. Available: {', '.join(LABELLERS)}.")
        if views < 1:
            raise ValueError(f"views={views}: at least one view of every image is needed.")
        if batch_norm not in BATCH_NORM:
            raise ValueError(f"Unknown batch_norm {batch_norm!r}. Available: {', '.join(BATCH_NORM)}.")
        if rounding not in ROUNDINGS:
            raise ValueError(f"Unknown rounding {rounding!r}. Available: {', '.join(ROUNDINGS)}.")
        if source.num_examples != model.num_examples:
            raise ValueError(
                f"The source has {source.num_examples} examples and the model has labels for {model.num_examples}. "
                "Make the model with num_examples=source.num_examples."
            )
        if model.label_store.spread > 1 and labeller != "sinkhorn":
            raise ValueError(
                f"spread={model.label_store.spread} takes shares from a transport plan, and labeller={labeller!r} has "
                "none. Use the labeller sinkhorn, or a model with spread=1."
            )
        if model.label_store.spread > 1 and rounding == "balanced":
            raise ValueError(
                f"rounding='balanced' decides one label of every image, and a model with "
                f"spread={model.label_store.spread} learns its shares instead. Use rounding='argmax', or spread=1."
            )
        if view_source is not None and view_source.num_examples != source.num_examples:
            raise ValueError(
                f"view_source has {view_source.num_examples} images and the source {source.num_examples}. Make it from "
                'the source, e.g. source.augmented("flip").'
            )
        if cluster_weights is not None and set(model.num_clusters) != {len(cluster_weights)}:
            raise ValueError(
                f"{len(cluster_weights)} cluster_weights for heads of {sorted(set(model.num_clusters))} clusters: "
                "every head needs as many clusters as there are weights."
            )
        if labeller == "given":
            self.given = _classes(source, model.num_clusters) if labels is None else np.asarray(labels)
            _check_given(self.given, source.num_examples, model.num_clusters)
            self.plan = NO_SCORES
        else:
            self.plan = plan_storage(
                source.num_examples,
                max(model.num_clusters),
                int(model.heads.kernel.shape[0]),
                available_memory(),
                available_disk(scratch),
                gpu_bytes=available_gpu_memory(score_devices(model.distribute_strategy)),
                views=views,
                kind=storage,
            )
        self.labeller = labeller
        self.scratch = scratch
        self.model, self.source, self.view_source = model, source, view_source or source
        self.views, self.seed = views, seed
        self.batch_size = _batch_for_all(batch_size, source.num_examples, model.distribute_strategy)
        self.warm_start = warm_start
        self.round = ROUNDINGS[rounding]
        self.weights = {"cluster_weights": cluster_weights} if rounding == "balanced" else {}
        self.options = {"lambda_": lambda_, "tolerance": tolerance, "max_passes": max_passes}
        self.options["cluster_weights"] = cluster_weights
        self.training = batch_norm == "training"
        self.forget_graph()

    def forget_graph(self):
        """Has the network compiled anew by the next pass: which layers are frozen is part of the compiled one."""
        model, training = self.model, self.training
        self._features = Extractor(lambda images: model.project(images, training=training), model.distribute_strategy)

    def run(self, number, heads, on_image=None, on_pass=None):
        """Relabels `heads` and returns a HeadRecord for each.

        Args:
            number: of the label pass within training; it selects the random views.
            heads: indices of the heads to relabel.
            on_image: called with (images seen, images in all) during extraction.
            on_pass: called with (head, record of the reading) during each solve.
        """
        if self.labeller == "given":
            return [self._give(head) for head in heads]
        features = [self._view(number * self.views + view, view, on_image) for view in range(self.views)]
        new_labels = {"sinkhorn": self._transport, "kmeans": self._kmeans}[self.labeller]
        find = new_labels(features, number, on_pass)
        return [self._relabel(features, head, find) for head in heads]

    def _give(self, head):
        store, after = self.model.label_store, self.given[:, head].astype(np.int32)
        before = store.labels()[:, head]
        store.assign_head(head, after, store.log_alpha(head))
        return HeadRecord(head, before, after, None, None, None, solution=None, renumbered=False)

    def _view(self, position, view, on_image):
        count = self.source.num_examples
        report = None if on_image is None else lambda done: on_image(view * count + done, self.views * count)
        batches = self.view_source.view_batches(self.batch_size, position=position, seed=self.seed)
        return self._features(batches, count, report)

    def _relabel(self, features, head, find):
        """Gives `head` the labels of `find`: (head, log_p) -> labels [N], the SinkhornResult or None."""
        log_p = self._scores(features, head)
        store = self.model.label_store
        before = store.labels()[:, head]
        after, solution = find(head, log_p)
        log_alpha = store.log_alpha(head) if solution is None else solution.log_alpha
        soft = None
        if store.spread > 1:
            soft = soft_labels(log_p, log_alpha, store.spread, lambda_=self.options["lambda_"])
        store.assign_head(head, after, log_alpha, soft)
        predictions, (cost_before, cost_after) = _read(log_p, (before, after))
        renumbered = self.labeller == "kmeans"
        return HeadRecord(head, before, after, predictions, cost_before, cost_after, solution, renumbered)

    def _transport(self, features, number, on_pass):
        def find(head, log_p):
            store = self.model.label_store
            solution = solve(
                log_p,
                log_alpha=store.log_alpha(head) if self.warm_start else None,
                on_pass=None if on_pass is None else lambda record: on_pass(head, record),
                **self.options,
            )
            return self.round(log_p, solution.log_alpha, lambda_=self.options["lambda_"], **self.weights), solution

        return find

    def _kmeans(self, features, number, on_pass):
        rows = kmeans.whitened(features[0] if self.views == 1 else sum(features) / self.views)

        def find(head, log_p):
            seed = np.random.SeedSequence([self.seed, number, head]).generate_state(1)[0]
            return kmeans.cluster(rows, self.model.num_clusters[head], int(seed)), None

        return find

    def _scores(self, features, head):
        """log_p of one head as row blocks [n, K_head] on the devices of the model."""

        def block(start, stop):
            views = [self.model.heads.log_probabilities(z[start:stop], head) for z in features]
            return views[0] if len(views) == 1 else tf.add_n(views) / len(views)

        devices = score_devices(self.model.distribute_strategy)
        if not self.plan.gpu_bytes:  # main memory, even where TensorFlow would take a GPU
            devices = [device for device in devices if "CPU" in device] or ["/CPU:0"]
        return HeadScores(block, self.source.num_examples, self.plan.kind, scratch=self.scratch, devices=devices)


def _batch_for_all(batch_size, num_examples, strategy):
    """`batch_size`, or a little less where the last batch would not reach every replica, as BatchNorm over no image is
    NaN, or would be a single image, of which BatchNorm leaves nothing."""
    replicas = strategy.num_replicas_in_sync
    fitting = (s for s in range(batch_size, 1, -1) if reach_all(s, num_examples, replicas) and num_examples % s != 1)
    return next(fitting, batch_size)


def reach_all(batch_size, num_examples, replicas):
    """Whether every batch, the last one included, has an image for every replica.

    TensorFlow deals a batch of n out in slices of ceil(n / replicas), so n >= replicas is not enough: of 9 images for 8
    replicas, the first four get 2 each, the fifth 1 and the others none.
    """
    sizes = {min(batch_size, num_examples), num_examples % batch_size} - {0}
    return all(-(-size // replicas) * (replicas - 1) < size for size in sizes)


def _classes(source, num_clusters):
    """The classes of a source as labels [N, H]; refuses one whose classes cannot be those of every head."""
    if source.classes is None:
        raise ValueError(
            f"labeller='given' trains on true classes, and {source.name} has none. Use images with classes, or another "
            "labeller."
        )
    count = len(source.class_names) if source.class_names else int(source.classes.max()) + 1
    if set(num_clusters) != {count}:
        raise ValueError(
            f"labeller='given': {source.name} has {count} classes and the heads {' '.join(map(str, num_clusters))} "
            f"clusters. Give every head {count}, e.g. model.num_clusters={count}."
        )
    return np.repeat(source.classes[:, None], len(num_clusters), axis=1)


def _check_given(labels, num_examples, num_clusters):
    """Refuses labels that are not one of 0..K_h-1 for every example and head."""
    expected = (num_examples, len(num_clusters))
    if labels.dtype.kind not in "iu" or labels.shape != expected:
        raise ValueError(
            f"The given labels are {labels.dtype} of shape {labels.shape}; whole numbers of shape {expected} are "
            "expected: one row per example, one column per head."
        )
    for head, count in enumerate(num_clusters):
        low, high = labels[:, head].min(), labels[:, head].max()
        if low < 0 or high >= count:
            raise ValueError(
                f"The given labels of head {head} lie in {low}..{high}, and the head has {count} clusters, 0 to "
                f"{count - 1}. Give it {high + 1}, or other labels."
            )


def _read(log_p, labellings):
    """One reading of the row blocks of log_p: the argmax of each row, int32 [N], and for each of the labellings [N]
    E(p, q) = mean over i of -log_p[i, label_i]."""
    predictions, totals, start = [], [0.0] * len(labellings), 0
    for block in log_p:
        stop = start + block.shape[0]
        predictions.append(tf.argmax(block, axis=1, output_type=tf.int32).numpy())
        for number, labels in enumerate(labellings):
            totals[number] -= float(tf.reduce_sum(tf.gather(block, labels[start:stop], batch_dims=1)))
        start = stop
    return np.concatenate(predictions), [total / start for total in totals]
