"""How good is a finished run? Its labels and features against the true classes, beside what needs no training.

Classes are used here only: nothing of training has seen them. Without classes the tables are left out.
"""

import dataclasses
import json
from dataclasses import dataclass

import keras
import numpy as np

from ..atomic_file import write_atomically
from ..evaluation import clustering, knn, report_page
from ..evaluation.projection import unit_rows
from ..evaluation.report import Table
from ..evaluation.report_contents import RunContents
from ..features import Extractor
from . import run_facts
from .assembly import TrainingSet, make_model, make_source
from .report_data import RunState, collect
from .run_images import what_is_wanting
from .run_log import read_records

BATCH_SIZE = 256


@dataclass(frozen=True)
class Assessment:
    """Tables for a person, the same numbers for a program, facts of the run, and what its report page shows; None if it
    is to have none."""

    tables: tuple[Table, ...]
    numbers: dict
    facts: dict
    contents: RunContents | None


def check(config, source):
    """Refuses settings by which a run could not be judged once it is trained. source: its training images."""
    test = make_source(config, config.data.test_split) if config.data.test_split else None
    evaluation = config.evaluation
    if source.classes is None or not (evaluation.knn or evaluation.knn_every):
        return
    try:
        if test is not None and test.classes is None:
            raise ValueError(f"{test.name} has no true classes to compare with.")
        knn.check_settings([evaluation.knn_k], [evaluation.knn_sigma], source.num_examples - (test is None))
        if test is not None:
            knn.check_classes(source.classes, test.classes)
    except ValueError as error:
        raise ValueError(
            f"Nearest neighbours, evaluation.knn_k={evaluation.knn_k}: {error} Or leave them out: "
            "evaluation.knn=false, evaluation.knn_every=0."
        ) from error


def assess(config, workdir, model, source, say=lambda text: None):
    """Measures a trained model on the images of its run."""
    tables, numbers = [], {}
    test = make_source(config, config.data.test_split) if config.data.test_split else None
    if source.classes is not None:
        features = _features(config, model, source, test, say)
        say("Comparing clusters")
        clusters = _cluster_table(config, model, source.classes, features, numbers)
        tables += [clusters] * bool(clusters.rows)
        if config.evaluation.knn:
            say("Comparing features by nearest neighbours")
            tables.append(_knn_table(config, source, test, features, numbers))
    images, contents = TrainingSet.of(source), None
    if config.evaluation.report:
        say("Drawing the report")
        contents = collect(
            RunState(
                config,
                workdir,
                model,
                config.epochs,
                images,
                source.ids,
                source,
                np.arange(source.num_examples),
                test,
                numbers,
                tuple(tables),
                what_is_wanting(test),
            )
        )
    facts = run_facts.describe(config, images, read_records(workdir / "metrics.jsonl"))
    facts |= run_facts.stamp("finished")
    return Assessment(tuple(tables), numbers, facts, contents)


def write(assessment, config, workdir):
    """report.html if there is to be one, and results.json, whose presence says that the run is finished."""
    contents = assessment.contents
    if contents is None:
        (workdir / "report.html").unlink(missing_ok=True)  # of the run when it was not finished
    else:
        report_page.write(workdir / "report.html", [contents], title=report_page.title_of(contents.name))
    tables = [dataclasses.asdict(table) for table in assessment.tables]
    results = {"facts": assessment.facts, "numbers": assessment.numbers, "tables": tables}
    write_atomically(workdir / "results.json", json.dumps(results, indent=2, allow_nan=False) + "\n")


def _features(config, model, source, test, say):
    """Name -> [features of the training images [N, D], of the test images or None]."""
    if not (config.evaluation.knn or config.evaluation.kmeans):
        return {}
    networks = {}
    if config.evaluation.baselines:
        untrained = make_model(config, source)
        networks["raw pixels"] = _flatten
        networks["random weights"] = lambda images: untrained.backbone(images, training=False)
    networks["learned features"] = lambda images: model.backbone(images, training=False)
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
        of = "one head" if len(heads) == 1 else f"mean of {len(heads)} heads"
        rows.append(_cluster_row(f"self-labels, {of}", max(model.num_clusters), heads))
    for name in [n for n in ("raw pixels", "learned features") if config.evaluation.kmeans and n in features]:
        for k in sorted({len(np.unique(classes)), max(model.num_clusters)}):
            found = clustering.kmeans_labels(unit_rows(features[name][0]), k, config.seed)
            rows.append(_cluster_row(f"K-means on {name}", k, [clustering.scores(found, classes)]))
    numbers["clusters"] = [dict(zip(("what", "clusters", "nmi", "ami", "ari"), row, strict=True)) for row in rows]
    return Table(
        "Clusters against the true classes",
        ("", "clusters", "NMI", "AMI", "ARI"),
        tuple(rows),
        "K-means on rows of length 1. NMI favours many clusters; AMI and ARI are corrected for chance.",
    )


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
    untrained = " Random weights: the same network, untrained." * config.evaluation.baselines
    return Table(
        "Weighted nearest neighbours",
        ("features", "accuracy"),
        tuple(rows),
        f"k={options['k']}, sigma={options['sigma']}, {where}.{untrained}",
    )
