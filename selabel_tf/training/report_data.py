"""What the report page shows of a run, collected: from its log, its network and its images.

    contents = of_folder("runs/digits")                 a run folder, finished or not, its images there or not
    contents = collect(RunState(...))                   the same for a run that is in memory

What is not there is left out, and a sentence says so. The network looks at MEASURED training images at most, evenly
spread; of those, THUMBNAILS are shown, the same for all heads, and neighbours are sought among these.
"""

import contextlib
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .. import json_file
from ..data import Source
from ..evaluation import (
    cluster_summary,
    comparison,
    curves,
    figures,
    inspection,
    neighbours,
    projection,
    results,
    sprites,
)
from ..evaluation.report import format_cell
from ..evaluation.report_contents import Images, Map, Neighbourhood, RunContents
from . import run_facts, run_images
from .assembly import TrainingSet
from .card import evaluation_tables
from .run_log import read_records
from .trained_run import load_run

BATCH_SIZE = 256
MEASURED, HELD_OUT = 25_000, 10_000
THUMBNAILS, HELD_OUT_THUMBNAILS = 12_288, 4_096
QUERIES, NEAREST = 12, 8
MAPPED = 2_000


@contextlib.contextmanager
def no_progress(total, label):
    """In place of a progress bar: progress(total, label) -> something with update(done)."""
    yield type("Nobody", (), {"update": staticmethod(lambda done: None)})


@dataclass(frozen=True)
class RunState:
    """A run as it is in memory. train: its images as far as they are there, being those of `rows` of the training set.

    numbers and tables: what results.json holds, or is about to hold. ids: of all training images.
    """

    config: object
    workdir: Path
    model: object
    epoch: int
    training_set: TrainingSet
    ids: tuple[str, ...]
    train: Source | None
    rows: np.ndarray | None
    test: Source | None
    numbers: dict = field(default_factory=dict)
    tables: tuple = ()
    lacking: tuple[str, ...] = ()


def of_folder(workdir, progress=no_progress) -> RunContents:
    """Of a run folder, at its newest checkpoint."""
    run = load_run(workdir)
    finished = (run.workdir / "results.json").is_file()
    epoch = run.checkpoint.facts["epoch"]
    lacking = []
    if not finished:
        stands = (
            f"The run is not finished: it has done {epoch} of {run.config.epochs} epochs. This is how it stood then."
        )
        if epoch == run.config.epochs:
            stands = "The run is not finished: all epochs are done, but nothing was measured. tools.train does it."
        lacking.append(stands)
    ids, train, rows, why = run_images.training_images(run)
    test, why_not = run_images.held_out_images(run)
    numbers = _whole(lambda: _numbers_of(run.workdir / "results.json"), {}, lacking) if finished else {}
    tables = _whole(lambda: tuple(evaluation_tables(run.workdir)), (), lacking)
    lacking += [*why, *why_not]
    parts = run.config, run.workdir, run.model, epoch, run.training_set, ids, train, rows, test, numbers, tables
    return collect(RunState(*parts, tuple(lacking)), progress)


def collect(state: RunState, progress=no_progress) -> RunContents:
    """All of it. progress: a function (total, label) -> context with update(done), for the slow parts."""
    config, lacking = state.config, list(state.lacking)
    records = _whole(lambda: _records(state), [], lacking)
    evaluation = _whole(lambda: results.load_all(state.workdir), {}, lacking)
    if not records:
        lacking.append("There is no log of training (metrics.jsonl), so there are no curves and no verdict.")
    labels = state.model.labels
    quoted = lambda behind="": shlex.quote(f"{state.workdir}{behind}")  # noqa: E731  for commands that can be pasted
    training, view = _training(state, labels, lacking, progress)
    judgeable = state.train is None or training.classes is not None
    if not evaluation and judgeable:
        lacking.append(
            "No evaluation tool has been run on it. python -m tools.linear_probe, tools.knn and tools.clusters, each "
            f"with --workdir={quoted()}, measure more; then make this report again."
        )
    held_out = _held_out(state, lacking, progress)
    if not judgeable:
        lacking.append(f"{state.training_set.name} has no true classes: purity, entropy and NMI are left out.")
    names = None if state.train is None or training.classes is None else state.train.class_names
    return RunContents(
        name=state.workdir.resolve().name,
        highlights=run_facts.highlights(
            config, state.training_set, records, labels, run_facts.measured(config, state.numbers, evaluation)
        ),
        facts=_facts(state, records),
        verdict=run_facts.verdict(records),
        lacking=tuple(dict.fromkeys(lacking)),
        tables=state.tables,
        num_clusters=tuple(state.model.num_clusters),
        class_names=None if names is None else tuple(names),
        training=training,
        held_out=held_out,
        curves=curves.from_records(records),
        filters=_filters(state.model),
        probes=run_facts.probes(evaluation),
        neighbours=None if view is None else _neighbours(training, view),
        map=None if view is None else _map(training, view, progress),
        features=view,
        command=f"python -m tools.train --config={quoted('/config.json')} --workdir={quoted('-again')}",
        probe_command=run_facts.probe_command(state.workdir, state.model.backbone) if judgeable else "",
    )


def _whole(read, otherwise, lacking):
    """What `read` gives; `otherwise`, and a sentence, where a file of the run is damaged."""
    try:
        return read()
    except ValueError as error:
        lacking.append(f"A damaged file is left out. {error}")
        return otherwise


def _records(state):
    log = state.workdir / "metrics.jsonl"
    records = read_records(log) if log.is_file() else []
    with json_file.trusting(log, "the log of a run", "Mend it, or do without curves."):
        curves.from_records(records), run_facts.describe(state.config, state.training_set, records)
    return records


def _numbers_of(path):
    """The numbers of a results.json, which can be taken apart."""
    what = "the results.json of a run", "Train again to measure it."
    with json_file.trusting(path, *what):
        numbers = json_file.read_object(path, *what)["numbers"]
        comparison.of_run(numbers, ())
    return numbers


def _facts(state, records):
    done = {"epochs": f"{state.epoch} of {state.config.epochs}"} if state.epoch < state.config.epochs else {}
    facts = run_facts.describe(state.config, state.training_set, records) | done | run_facts.stamp("report made")
    return {name: format_cell(value) for name, value in facts.items()}


def _training(state, labels, lacking, progress):
    """(the training images, features of those shown [P, D] or None)."""
    num_clusters = state.model.num_clusters
    classes, view = None, None
    if state.train is not None:
        classes = _in_place(state.train.classes, state.rows, len(labels))
        measured = _spread(np.arange(state.train.num_examples), MEASURED)
        view = _look(state, state.train, measured, labels[state.rows[measured]], lacking, progress)
    heads = _summaries(labels, num_clusters, classes)
    if view is None:
        none = np.zeros(0, np.int32)
        return Images(state.training_set.name, state.ids, labels, classes, none, None, None, heads), None
    if len(measured) < len(labels):
        lacking.append(f"Confidence and features were measured on {len(measured)} of {len(labels)} training images.")
    chosen = sprites.choose(view.clusters, most=THUMBNAILS, seed=state.config.seed)
    tiles = _tiles(state, state.train, measured[chosen], lacking, progress)
    if tiles is not None and len(chosen) < len(labels):
        lacking.append(f"{len(chosen)} of {len(labels)} training images have a thumbnail; all can be searched for.")
    heads = tuple(
        replace(
            summary,
            confidence=cluster_summary.cluster_means(view.confidence[:, h], view.clusters[:, h], k)[:, 0],
            nearest=cluster_summary.nearest_clusters(view.features, view.clusters[:, h], k),
        )
        for h, (summary, k) in enumerate(zip(heads, num_clusters, strict=True))
    )
    shown, sure = state.rows[measured[chosen]], view.confidence[chosen]
    images = Images(state.training_set.name, state.ids, labels, classes, shown, tiles, sure, heads)
    return images, view.features[chosen] if tiles is not None else None


def _held_out(state, lacking, progress):
    """The held-out images in the clusters that the heads predict, or None."""
    if state.test is None:
        return None
    measured = _spread(np.arange(state.test.num_examples), HELD_OUT)
    view = _look(state, state.test, measured, None, lacking, progress)
    if view is None:
        return None
    source = state.test.subset(measured)
    chosen = sprites.choose(view.clusters, most=HELD_OUT_THUMBNAILS, seed=state.config.seed)
    tiles = _tiles(state, state.test, measured[chosen], lacking, progress)
    heads = _summaries(view.clusters, state.model.num_clusters, source.classes)
    if len(measured) < state.test.num_examples:
        lacking.append(f"{len(measured)} of {state.test.num_examples} held-out images were looked at.")
    return Images(source.name, source.ids, view.clusters, source.classes, chosen, tiles, view.confidence[chosen], heads)


def _summaries(labels, num_clusters, classes):
    """Of every head; images whose class is not known (-1) count for the sizes only."""
    made = []
    for column, k in zip(labels.T, num_clusters, strict=True):
        known = slice(None) if classes is None else classes >= 0
        summary = cluster_summary.summarise(column[known], k, None if classes is None else classes[known])
        made.append(replace(summary, sizes=np.bincount(column, minlength=k)))
    return tuple(made)


def _look(state, source, rows, labels, lacking, progress):
    """The network's look at some rows of a source; None, and a sentence, where they cannot be read."""
    part = source.subset(rows)
    try:
        with progress(len(rows), f"looking at {source.name}") as bar:
            batches = part.plain_batches(BATCH_SIZE)
            return inspection.look(state.model, batches, len(rows), labels, bar.update)
    except run_images.UNREADABLE as error:
        lacking.append(
            f"The images of {source.name} cannot be read, so there are none here: {run_images.first_line(error)}"
        )
        return None


def _tiles(state, source, rows, lacking, progress):
    """Thumbnails [n, s, s, c] of some rows, as they look before normalisation."""
    augment = state.config.augment
    height, width, _ = state.training_set.image_shape
    size = augment.size or (height if height == width else None)
    part = source.subset(rows).augmented(augment.policy, size)
    side = sprites.tile_size(height, width)
    made, done = [], 0
    with progress(len(rows), f"thumbnails of {source.name}") as bar:
        for images, _ in part.plain_batches(BATCH_SIZE).as_numpy_iterator():
            made.append(sprites.tiles(images, side))
            done += len(images)
            bar.update(done)
    return np.concatenate(made)


def _neighbours(training, features):
    """Of the first images shown, which are in random order, among all that are shown."""
    count = min(NEAREST, len(features) - 1)
    if count < 1:
        return None
    queries = np.arange(min(QUERIES, len(features)))
    pixels = training.tiles.reshape(len(features), -1).astype(np.float32)
    found = [_others(rows, queries, count) for rows in (features, pixels)]
    return Neighbourhood(training.shown[queries], *(training.shown[rows] for rows in found), bank=len(features) - 1)


def _others(rows, queries, count):
    """The `count` other rows nearest to each of the rows `queries`: [Q, count]."""
    found = neighbours.nearest(rows, rows[queries], count + 1).rows
    own = found == queries[:, None]
    own[~own.any(axis=1), -1] = True  # as near as itself are more others than wanted
    return found[~own].reshape(len(queries), count)


def _map(training, features, progress):
    features = features[:MAPPED]
    with progress(1, f"a map of {len(features)} images") as bar:
        points = projection.project(features)
        bar.update(1)
    return Map(training.shown[: len(features)], points) if points else None


def _filters(model):
    kernel = next((w for w in model.backbone.weights if len(w.shape) == 4), None)
    if kernel is None or kernel.shape[2] not in (1, 3):
        return None
    return figures.filters(kernel.numpy())


def _in_place(classes, rows, count):
    """Classes of the images that are there, at their rows of the training set; -1 elsewhere."""
    if classes is None:
        return None
    full = np.full(count, -1, np.int64)
    full[rows] = classes
    return full


def _spread(values, most):
    return values[np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(np.int64)]
