"""How good are the features and the clusters: measures against true classes, pictures, and the report."""

from . import (
    assignment,
    cluster_report,
    clustering,
    collapse,
    comparison,
    contingency,
    figures,
    knn,
    layer_features,
    neighbours,
    paper,
    pca,
    report,
    results,
)

__all__ = [
    "assignment",
    "cluster_report",
    "clustering",
    "collapse",
    "comparison",
    "contingency",
    "figures",
    "knn",
    "layer_features",
    "neighbours",
    "paper",
    "pca",
    "report",
    "results",
]
