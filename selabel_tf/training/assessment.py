"""How good is a finished run? Its labels and features against the true classes, beside what needs no training.

Classes are used here only: nothing of training has seen them. Without classes the tables are left out.
"""

import dataclasses
import json
import platform
from dataclasses import dataclass
from datetime import UTC, datetime

import keras
import numpy as np

from ..atomic_file import write_atomically
from ..evaluation import clustering, figures, knn
from ..evaluation.report import Table, write_report
from ..features import Extractor
from .assembly import make_model, make_source
from .run_log import read_records

BATCH_SIZE = 256


@dataclass(frozen=True)
class Assessment:
    """Tables for a person, the same numbers for a program, and pictures (caption, PNG, text in its place)."""

    tables: tuple[Table, ...]
    numbers: dict
    pictures: tuple[tuple[str, bytes, str], ...]
    facts: dict


def assess(config, workdir, model, source, say=lambda text: None):
    """Measures a trained model on the images of its run."""
    records = read_records(workdir / "metrics.jsonl")
    tables, numbers = [], {}
    if source.classes is not None:
        test = make_source(config, config.data.test_split) if config.data.test_split else None
        features = _features(config, model, source, test, say)
        say("Comparing clusters")
        clusters = _cluster_table(config, model, source.classes, features, numbers)
        tables += [clusters] * bool(clusters.rows)
        if config.evaluation.knn:
            say("Comparing features by nearest neighbours")
            tables.append(_knn_table(config, source, test, features, numbers))
    curves = (_curves(records, config),) if records else ()  # an untrained network has none
    learnt = "labels" in config.model.objectives
    pictures = (*curves, _cluster_picture(config, model, source)) if learnt else curves
    return Assessment(tuple(tables), numbers, pictures, _facts(config, source, records))


def write(assessment, config, workdir):
    """report.html, and results.json, whose presence says that the run is finished."""
    write_report(
        workdir / "report.html",
        title=f"Self-labelling: {config.name}",
        tables=assessment.tables,
        figures=assessment.pictures,
        facts=assessment.facts,
        command=f"python -m tools.train --config={workdir / 'config.json'} --workdir={workdir}-again",
    )
    tables = [dataclasses.asdict(table) for table in assessment.tables]
    results = {"facts": assessment.facts, "numbers": assessment.numbers, "tables": tables}
    write_atomically(workdir / "results.json", json.dumps(results, indent=2, allow_nan=False) + "\n")


def _features(config, model, source, test, say):
    """Name -> [features of the training images [N, D], of the test images or None]."""
    if not (config.evaluation.knn or config.evaluation.kmeans):
        return {}
    untrained = make_model(config, source)
    networks = {
        "raw pixels": _flatten,
        "random weights": lambda images: untrained.backbone(images, training=False),
        "learned features": lambda images: model.backbone(images, training=False),
    }
    features = {}
    for name, forward in networks.items():
        say(f"Extracting {name}")
        extractor = Extractor(forward, model.distribute_strategy)
        shown = [s and (as_stored(s) if forward is _flatten else s) for s in (source, test)]
        features[name] = [s and extractor(s.plain_batches(BATCH_SIZE), s.num_examples) for s in shown]
    return features


def as_stored(source):
    """The source's images without enlargement: CIFAR's pixels are 32 x 32 values, whatever the network's input."""
    size = None if None not in source.stored_shape else source.image_shape[0]
    return source.augmented("none", size)


def _flatten(images):
    return keras.ops.reshape(images, (keras.ops.shape(images)[0], -1))


def _cluster_table(config, model, classes, features, numbers):
    rows = []
    if "labels" in config.model.objectives:
        heads = [clustering.scores(column, classes) for column in model.labels.T]
        rows.append(_cluster_row(f"self-labels, mean of {len(heads)} heads", max(model.num_clusters), heads))
    for name in ("raw pixels", "learned features") if config.evaluation.kmeans else ():
        for k in sorted({len(np.unique(classes)), max(model.num_clusters)}):
            found = clustering.kmeans_labels(_unit_rows(features[name][0]), k, config.seed)
            rows.append(_cluster_row(f"K-means on {name}", k, [clustering.scores(found, classes)]))
    numbers["clusters"] = [dict(zip(("what", "clusters", "nmi", "ami", "ari"), row, strict=True)) for row in rows]
    return Table(
        "Clusters against the true classes",
        ("", "clusters", "NMI", "AMI", "ARI"),
        tuple(rows),
        "K-means on rows of length 1. NMI favours many clusters; AMI and ARI are corrected for chance.",
    )


def _unit_rows(features):
    """Features by their direction alone, as nearest neighbours see them."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(lengths > 0, lengths, 1)


def _cluster_row(name, clusters, scores):
    return (name, clusters, *(float(np.mean([s[key] for s in scores])) for key in ("nmi", "ami", "ari")))


def _knn_table(config, source, test, features, numbers):
    options = {"k": config.evaluation.knn_k, "sigma": config.evaluation.knn_sigma}
    rows = []
    for name, (bank, queries) in features.items():
        if test is None:
            accuracy = knn.leave_one_out_accuracy(bank, source.classes, **options)
        else:
            accuracy = knn.knn_accuracy(bank, source.classes, queries, test.classes, **options)
        rows.append((name, float(accuracy)))
    numbers["knn"] = [{"what": name, "accuracy": accuracy} for name, accuracy in rows]
    where = f"on split {config.data.test_split}" if test is not None else "each image by all others"
    return Table(
        "Weighted nearest neighbours",
        ("features", "accuracy"),
        tuple(rows),
        f"k={options['k']}, sigma={options['sigma']}, {where}. Random weights: the same network, untrained.",
    )


def _curves(records, config):
    """The picture of training: loss, NMI to classes and share of labels changed."""
    by_pass = {}
    for record in records:
        if record["kind"] == "labels":
            by_pass.setdefault(record["step"], []).append(record)
    points = [r for r in records if r["kind"] == "epoch"]
    together = config.label.heads == "all"
    for step, heads in by_pass.items():
        point = {"step": step}
        if heads[0]["changed"] is not None:
            changed = [h["changed"] for h in heads]
            point["share_changed"] = changed if together else changed[0]
        if heads[0]["nmi"] is not None:
            point["nmi"] = [h["nmi"] for h in heads]
        points.append(point)
    caption = "Training. Thin lines: single heads."
    return caption, figures.curves(points), "Loss, agreement with the true classes, and share of labels changed"


def _cluster_picture(config, model, source):
    """The clusters of head 0, as images before normalisation."""
    labels = model.labels[:, 0]
    rows = figures.sample_rows(labels)
    shown = source.subset(rows).augmented(config.augment.policy, config.augment.size or None)
    images = np.concatenate([images for images, _ in shown.plain_batches(BATCH_SIZE).as_numpy_iterator()])
    picture = figures.clusters(images, rows, labels, classes=source.classes, class_names=source.class_names)
    return "Clusters of head 0, evenly sampled.", picture, "One row of example images per cluster"


def _facts(config, source, records):
    epochs = [r for r in records if r["kind"] == "epoch"]
    labels = [r for r in records if r["kind"] == "labels"]
    facts = {
        "dataset": f"{source.name}, {source.num_examples} images {'x'.join(map(str, source.image_shape))}",
        "backbone": config.model.backbone,
        "clusters": " ".join(map(str, config.model.num_clusters)),
        "epochs": config.epochs,
        "last loss": epochs[-1]["loss"] if epochs else None,
        "images per second in training": (
            f"{np.median([r['images_per_second'] for r in epochs]):.0f}" if epochs else None
        ),
        "labels by": config.label.labeller,
        "label passes": len({r["step"] for r in labels}),
        "solves that did not converge": sum(r["converged"] is False for r in labels),
        "seed": config.seed,
        "finished": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "made with": f"Python {platform.python_version()}, Keras {keras.__version__}",
    }
    return facts
