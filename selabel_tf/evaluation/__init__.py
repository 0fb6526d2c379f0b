"""How good are the features and the clusters: measures against true classes, pictures, and the report."""

from . import clustering, figures, knn, layer_features, neighbours, pca, report, results

__all__ = ["clustering", "figures", "knn", "layer_features", "neighbours", "pca", "report", "results"]
