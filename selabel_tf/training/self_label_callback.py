"""SelfLabelCallback: label passes inside `fit`, at scheduled steps, and what each of them did."""

import time
import warnings
from dataclasses import asdict, dataclass

import keras
import numpy as np

from ..evaluation import clustering
from ..labelling import schedule as schedules
from ..labelling.relabel import Relabeller


class NotConvergedWarning(UserWarning):
    """A label pass used scalings whose marginal error was still above the tolerance."""


@dataclass(frozen=True)
class HeadStatistics:
    """One head after one label pass."""

    head: int
    passes: int  # readings of the scores
    marginal_error: float
    converged: bool
    smallest: int  # cluster
    largest: int  # cluster
    changed: float  # share of labels that differ from before
    nmi_previous: float  # NMI to the labels before
    objective_before: float
    objective_after: float
    cost: float  # of the transport plan
    bound: float  # no balanced labelling can cost less
    nmi: float | None  # to the true classes, where the source has them


@dataclass(frozen=True)
class LabelPass:
    """One label pass: number of num_passes, before which training step, how long, and every head relabelled."""

    number: int
    num_passes: int
    step: int
    seconds: float
    heads: tuple[HeadStatistics, ...]

    def summary(self):
        """One line for a person."""
        heads = self.heads
        readings = [h.passes for h in heads]
        parts = [
            f"labels {self.number + 1}/{self.num_passes}",
            f"step {self.step}",
            f"{len(heads)} heads" if len(heads) > 1 else f"head {heads[0].head}",
            f"sinkhorn {_span(readings)} passes to error {max(h.marginal_error for h in heads):.0e}",
            f"sizes {min(h.smallest for h in heads)}-{max(h.largest for h in heads)}",
            f"changed {100 * _mean(heads, 'changed'):.1f}%",
            f"NMI to last {_mean(heads, 'nmi_previous'):.3f}",
            f"E {_mean(heads, 'objective_before'):.3f} -> {_mean(heads, 'objective_after'):.3f}",
            f"{self.seconds:.1f} s",
        ]
        if heads[0].nmi is not None:
            parts.insert(-1, f"NMI to classes {_mean(heads, 'nmi'):.3f}")
        return " | ".join(parts)

    def records(self):
        """One flat dictionary per head, for a log of JSON lines."""
        for head in self.heads:
            yield {"kind": "labels", "step": self.step, "label_pass": self.number, **asdict(head)}

    def scalars(self):
        """Means over the heads, for TensorBoard."""
        names = ["passes", "marginal_error", "changed", "nmi_previous", "objective_before", "objective_after"]
        names += ["nmi"] * (self.heads[0].nmi is not None)
        values = {f"labels/{name}": _mean(self.heads, name) for name in names}
        values["labels/smallest"] = min(head.smallest for head in self.heads)
        values["labels/largest"] = max(head.largest for head in self.heads)
        return values


class SelfLabelCallback(keras.callbacks.Callback):
    """Renews the labels of a SelfLabelModel at scheduled steps of `fit`.

    Position is counted in training steps of the whole `fit`: epoch * steps per epoch + batch, so that
    `fit(..., initial_epoch=n)` goes on with the schedule where epoch n stands. With `steps_per_execution` above one,
    a pass takes place before the execution that holds its step.

    Args:
        source: the source whose `train_batches` are trained on.
        num_relabels: label passes over the whole training; one before every step at most.
        schedule: "quadratic" (dense at first, as the paper) or "linear".
        heads: "all" at every pass, or "in_turn": one head per pass.
        on_label_pass: called with each LabelPass.
        on_progress: called with (label pass number, what is going on, done, total or None) within a pass.
        options: lambda_, views, batch_norm, rounding, tolerance, max_passes, warm_start, cluster_weights,
            batch_size, seed, storage and scratch, as in labelling.relabel.Relabeller.
    """

    def __init__(
        self,
        source,
        num_relabels=80,
        *,
        schedule="quadratic",
        heads="all",
        on_label_pass=None,
        on_progress=None,
        **options,
    ):
        super().__init__()
        schedules.steps(schedule, num_relabels, max(num_relabels, 1))  # an unknown name is refused now, not in fit
        schedules.heads_for_pass(heads, 0, 1)
        self.source = source
        self.num_relabels, self.schedule, self.heads = num_relabels, schedule, heads
        self.on_label_pass, self.on_progress = on_label_pass, on_progress
        self.options = options
        self.relabeller = None

    def on_train_begin(self, logs=None):
        if not hasattr(self.model, "label_store"):
            raise ValueError(
                f"SelfLabelCallback labels the training set of a SelfLabelModel; it got a "
                f"{type(self.model).__name__}. Wrap your network: SelfLabelModel(network, num_clusters, num_examples)."
            )
        self.check(self.model, self.params["epochs"], self.params["steps"])

    def check(self, model, epochs, steps_per_epoch):
        """Places the label passes of a `fit` of this length, or says why that cannot be; `fit` does it itself."""
        if steps_per_epoch is None:
            raise ValueError(
                "The number of steps per epoch is unknown, so label passes cannot be placed. Train on "
                "source.train_batches(batch_size), or give fit(steps_per_epoch=...)."
            )
        self.steps_per_epoch = steps_per_epoch
        self.due = schedules.steps(self.schedule, self.num_relabels, epochs * steps_per_epoch)
        together = model.steps_per_execution
        executions = [self._execution(step, together) for step in self.due]
        if len(set(executions)) < len(executions):
            closest = min(np.diff(self.due))
            raise ValueError(
                f"steps_per_execution={together} would put two label passes before the same execution: the closest "
                f"two are {closest} steps apart. Use steps_per_execution={closest} or fewer label passes."
            )
        self.number_at = {execution: number for number, execution in enumerate(executions)}
        if self.relabeller is None or self.relabeller.model is not model:
            self.relabeller = Relabeller(model, self.source, **self.options)

    def _execution(self, step, together):
        epoch, batch = divmod(step, self.steps_per_epoch)
        return epoch, batch - batch % together

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.source.next_epoch = epoch  # fit makes the epoch's iterator after this

    def on_train_batch_begin(self, batch, logs=None):
        number = self.number_at.get((self.epoch, batch))
        if number is not None:
            self._run(number, self.epoch * self.steps_per_epoch + batch)

    def _run(self, number, step):
        start = time.perf_counter()
        chosen = schedules.heads_for_pass(self.heads, number, len(self.model.num_clusters))
        on_image = on_pass = None
        if self.on_progress is not None:

            def on_image(done, total):
                self.on_progress(number, "images", done, total)

            def on_pass(head, record):
                self.on_progress(number, f"head {head}, error {record.marginal_error:.0e}", record.number, None)

        records = self.relabeller.run(number, chosen, on_image, on_pass)
        heads = tuple(statistics(record, self.model.num_clusters, self.source.classes) for record in records)
        for head in heads:
            if not head.converged:
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


def statistics(record, num_clusters, classes):
    """HeadStatistics of a labelling.relabel.HeadRecord; `classes` [N] are the true ones, or None."""
    sizes = clustering.cluster_sizes(record.labels_after, num_clusters[record.head])
    solution = record.solution
    return HeadStatistics(
        head=record.head,
        passes=int(solution.num_passes),
        marginal_error=float(solution.marginal_error),
        converged=bool(solution.converged),
        smallest=int(sizes.min()),
        largest=int(sizes.max()),
        changed=float(clustering.share_changed(record.labels_before, record.labels_after)),
        nmi_previous=float(clustering.nmi(record.labels_before, record.labels_after)),
        objective_before=record.objective_before,
        objective_after=record.objective_after,
        cost=float(solution.cost),
        bound=float(solution.bound),
        nmi=None if classes is None else float(clustering.nmi(record.labels_after, classes)),
    )


def _mean(heads, field):
    return sum(getattr(head, field) for head in heads) / len(heads)


def _span(numbers):
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}-{high}"
