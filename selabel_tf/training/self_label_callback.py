"""SelfLabelCallback: label passes inside `fit`, at scheduled steps."""

import time
import warnings
from bisect import bisect_left, bisect_right

import keras
import numpy as np

from ..labelling import schedule as schedules
from ..labelling.relabel import Relabeller
from . import distribution
from .fresh_heads import renew_head
from .label_pass import LabelPass, statistics


class NotConvergedWarning(UserWarning):
    """A label pass used scalings whose marginal error was still above the tolerance."""


class SelfLabelCallback(keras.callbacks.Callback):
    """Renews the labels of a SelfLabelModel at scheduled steps of `fit`.

    Position is counted in training steps of the whole `fit`: epoch * steps per epoch + batch, so that
    `fit(..., initial_epoch=n)` goes on with the schedule where epoch n stands. With `steps_per_execution` above one, a
    pass takes place before the execution that holds its step; of several, the last. `passes_done`, of a resumed run,
    are not made again. Where Keras cuts an epoch short, for want of batches, the last pass that was due behind its end
    is made before the next step.

    Args:
        source: the source whose `train_batches` are trained on.
        num_relabels: label passes over the whole training; one before every step at most. With the labeller "given"
            there is one, before the first step of `fit`, for all heads, whatever is said here.
        labeller: "sinkhorn", or a baseline: "kmeans" or "given", as in labelling.relabel.Relabeller. K-means numbers
            its clusters anew each time, so each head it labels begins anew as well.
        schedule: "quadratic" (dense at first, as the paper) or "linear".
        heads: "all" at every pass, or "in_turn": one head per pass.
        before_label_pass: called with (label pass number, step) before each pass.
        on_label_pass: called with each LabelPass.
        on_progress: called with (label pass number, what is going on, done, total or None) within a pass.
        options: lambda_, views, batch_norm, rounding, tolerance, max_passes, warm_start, cluster_weights,
            batch_size, seed, storage, scratch, labels and view_source, as in labelling.relabel.Relabeller.
    """

    def __init__(
        self,
        source,
        num_relabels=80,
        *,
        labeller="sinkhorn",
        schedule="quadratic",
        heads="all",
        before_label_pass=None,
        on_label_pass=None,
        on_progress=None,
        **options,
    ):
        super().__init__()
        schedules.steps(schedule, num_relabels, max(num_relabels, 1))  # an unknown name is refused now, not in fit
        schedules.heads_for_pass(heads, 0, 1)
        if labeller == "given":
            num_relabels, heads = 1, "all"
        self.source, self.labeller = source, labeller
        self.num_relabels, self.schedule, self.heads = num_relabels, schedule, heads
        self.before_label_pass, self.on_label_pass, self.on_progress = before_label_pass, on_label_pass, on_progress
        self.options = options
        self.passes_done = 0
        self.relabeller = None

    def on_train_begin(self, logs=None):
        if not hasattr(self.model, "label_store"):
            raise ValueError(
                f"SelfLabelCallback labels the training set of a SelfLabelModel; it got a "
                f"{type(self.model).__name__}. Wrap your network: SelfLabelModel(network, num_clusters, num_examples)."
            )
        self.check(self.model, self.params["epochs"], self.params["steps"])
        self.relabeller.forget_graph()  # a layer may have been frozen, or thawed, since the last `fit`
        self.next_pass = None

    def check(self, model, epochs, steps_per_epoch):
        """Places the label passes of a `fit` of this length, or says why that cannot be; `fit` does it itself."""
        if steps_per_epoch is None:
            raise ValueError(
                "The number of steps per epoch is unknown, so label passes cannot be placed. Train on "
                "source.train_batches(batch_size), or give fit(steps_per_epoch=...)."
            )
        # Which batches are trained on Keras does not tell: those that make an epoch of this length, or else the last.
        sizes = {size: self.source.steps_per_epoch(size) for size in self.source.batch_sizes}
        whole = [size for size, steps in sizes.items() if steps == steps_per_epoch]
        if whole:
            replicas = model.distribute_strategy.num_replicas_in_sync
            distribution.check_last_batch(whole[-1], replicas, model.num_examples)
        self.source_steps = steps_per_epoch if whole or not sizes else list(sizes.values())[-1]
        self.steps_per_epoch = steps_per_epoch
        self.due = schedules.steps(self.schedule, self.num_relabels, epochs * steps_per_epoch)
        together = model.steps_per_execution
        self.executions = [self._execution(step, together) for step in self.due]
        merged = len(self.executions) - len(set(self.executions))
        if merged and self.heads == "in_turn":
            closest = min(np.diff(self.due))
            raise ValueError(
                f"steps_per_execution={together} would put two label passes before the same execution, and with "
                f"heads='in_turn' leave out a head: the closest two are {closest} steps apart. "
                f"Use steps_per_execution={closest} or fewer label passes."
            )
        if merged:
            warnings.warn(
                f"With steps_per_execution={together}, {merged} of {len(self.due)} label passes fall before the same "
                "execution as the one after them, and are left out.",
                UserWarning,
                stacklevel=2,
            )
        if self.relabeller is None or self.relabeller.model is not model:
            self.relabeller = Relabeller(model, self.source, labeller=self.labeller, **self.options)
            self._warn_of_heads_left_out(len(model.num_clusters))

    def _warn_of_heads_left_out(self, heads):
        if self.heads == "in_turn" and 0 < self.num_relabels < heads:
            warnings.warn(
                f"{heads - self.num_relabels} of {heads} heads keep the labels they begin with: heads='in_turn' gives "
                f"each label pass to one head, and there are {self.num_relabels}. "
                f"Use {heads} label passes or more, or heads='all'.",
                UserWarning,
                stacklevel=3,
            )

    def _execution(self, step, together):
        epoch, batch = divmod(step, self.steps_per_epoch)
        return epoch, batch - batch % together

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        # fit makes the epoch's iterator after this. An epoch of Keras may be longer than one of the source.
        self.source.next_epoch = max(epoch, -(-epoch * self.steps_per_epoch // self.source_steps))

    def on_train_batch_begin(self, batch, logs=None):
        here = (self.epoch, batch)
        if self.next_pass is None:  # the first step of this `fit`: passes before it are those of another, or nobody's
            missed = 0 if self.labeller == "given" else bisect_left(self.executions, here)
            self.next_pass = max(self.passes_done, missed)
        due = bisect_right(self.executions, here)
        if due > self.next_pass:
            self.next_pass = due
            self._run(due - 1, self.epoch * self.steps_per_epoch + batch)

    def _run(self, number, step):
        if self.before_label_pass is not None:
            self.before_label_pass(number, step)
        start = time.perf_counter()
        chosen = schedules.heads_for_pass(self.heads, number, len(self.model.num_clusters))
        on_image = on_pass = None
        if self.on_progress is not None:

            def on_image(done, total):
                self.on_progress(number, "images", done, total)

            def on_pass(head, record):
                self.on_progress(number, f"head {head}, error {record.marginal_error:.0e}", record.number, None)

        records = self.relabeller.run(number, chosen, on_image, on_pass)
        for record in records:
            if record.renumbered:
                renew_head(self.model, record.head, seed=self.relabeller.seed, step=step)
        heads = statistics(records, self.model.labels, self.model.num_clusters, self.source.classes)
        for head in heads:
            if head.converged is False:
                warnings.warn(
                    f"Label pass {number + 1}, head {head.head}: Sinkhorn stopped after {head.passes} passes with "
                    f"marginal error {head.marginal_error:.1e}. Its labels are used all the same. "
                    "Raise max_passes, or lower lambda_.",
                    NotConvergedWarning,
                    stacklevel=2,
                )
        if self.on_label_pass is not None:
            seconds = time.perf_counter() - start
            self.on_label_pass(LabelPass(number, len(self.due), step, seconds, heads))
