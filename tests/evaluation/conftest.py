"""A small report made by hand: what a run would give, without a run."""

import numpy as np
import pytest

from selabel_tf.evaluation import cluster_summary, curves
from selabel_tf.evaluation.report import Table
from selabel_tf.evaluation.report_contents import Images, Map, Neighbourhood, RunContents, Verdict


def images_of(count, num_clusters, num_classes, tile, shown, name, ids):
    generator = np.random.default_rng(count)
    labels = np.stack([generator.permutation(count) % k for k in num_clusters], axis=1)
    classes = generator.integers(num_classes, size=count) if num_classes else None
    rows = generator.permutation(count)[:shown]
    tiles = generator.integers(256, size=(shown, tile, tile, 3), dtype=np.uint8) if tile else None
    features = generator.normal(size=(count, 11)).astype(np.float32)
    confidence = generator.random((shown, len(num_clusters)))
    heads = []
    for column, k in zip(labels.T, num_clusters, strict=True):
        summary = cluster_summary.summarise(column, k, classes)
        sure = cluster_summary.cluster_means(generator.random(count), column, k)[:, 0]
        near = cluster_summary.nearest_clusters(features, column, k)
        heads.append(cluster_summary.ClusterSummary(*list(vars(summary).values())[:4], sure, near))
    return Images(name, tuple(ids), labels, classes, rows, tiles, confidence, tuple(heads))


@pytest.fixture(scope="session")
def example_report():
    """A function: what differs -> RunContents of 61 made-up images, two heads, three classes."""

    def make(count=61, num_clusters=(5, 7), class_names=("ant", "bee", "cow"), tile=16, shown=53, ids=None, **changes):
        ids = [f"folder/{row}.png" for row in range(count)] if ids is None else ids
        num_classes = len(class_names or ())
        training = images_of(count, num_clusters, num_classes, tile, shown, "made up", ids)
        held_out = images_of(29, num_clusters, num_classes, tile, 23, "held out", map(str, range(29)))
        records = [{"kind": "epoch", "step": 3 * e, "epoch": e, "loss": 2 / e, "learning_rate": 0.1} for e in (1, 2, 3)]
        for step in (0, 3):
            for head, k in enumerate(num_clusters):
                own = {
                    "clusters": k,
                    "nmi": 0.1 * head + step / 10,
                    "nmi_previous": 0.5,
                    "changed": 0.3,
                    "accuracy": 0.2,
                }
                records.append({"kind": "labels", "step": step, "head": head, **own})
        rows = training.shown
        parts = {
            "name": "example",
            "highlights": (("Last loss", "0.667", "ln K = 1.8"),),
            "facts": {"dataset": "made up", "seed": "7"},
            "verdict": Verdict("well", "Nothing is wrong."),
            "lacking": (),
            "tables": (Table("Measured", ("what", "NMI"), (("ours", 0.61), ("pixels", None)), "A note."),),
            "num_clusters": tuple(num_clusters),
            "class_names": class_names,
            "training": training,
            "held_out": held_out,
            "curves": curves.from_records(records),
            "filters": np.full((13, 17, 3), 90, np.uint8),
            "probes": (("Probe", (("conv1", 0.31), ("conv2", 0.47))),),
            "neighbours": Neighbourhood(rows[:2], rows[2:8].reshape(2, 3), rows[8:14].reshape(2, 3), shown - 1),
            "map": Map(rows[:19], {"PCA": np.random.default_rng(1).random((19, 2))}),
            "features": np.random.default_rng(2).normal(size=(shown, 11)),
            "command": "python -m tools.train --config=x",
        }
        return RunContents(**parts | changes)

    return make
