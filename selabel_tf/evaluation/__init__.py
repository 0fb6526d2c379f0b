"""How good are the features and the clusters: measures against true classes, pictures, and the report."""

from . import (
    batch_norm,
    clustering,
    crops,
    figures,
    knn,
    logistic,
    pooled_layers,
    probe_state,
    probe_training,
    probes,
    report,
    results,
)

__all__ = [
    "batch_norm",
    "clustering",
    "crops",
    "figures",
    "knn",
    "logistic",
    "pooled_layers",
    "probe_state",
    "probe_training",
    "probes",
    "report",
    "results",
]
