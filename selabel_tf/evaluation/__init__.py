"""How good are the features and the clusters: measures against true classes, pictures, and the report."""

from . import (<<<<<<< HEAD     assignment, =======     batch_norm, >>>>>>> probe     report, cluster_report, clustering, collapse, comparison, contingency, crops, figures, knn, layer_features, logistic, neighbours, paper, pca, pooled_layers, probe_state, probe_training, probes, results,)

__all__ = ["<<<<<<< HEAD     assignment", "=======     batch_norm", ">>>>>>> probe     report", "cluster_report", "clustering", "collapse", "comparison", "contingency", "crops", "figures", "knn", "layer_features", "logistic", "neighbours", "paper", "pca", "pooled_layers", "probe_state", "probe_training", "probes", "results"]
