"""How good are the features and the clusters: measures against true classes, pictures, and the report."""

from . import clustering, figures, knn, report, results

__all__ = ["clustering", "figures", "knn", "report", "results"]
