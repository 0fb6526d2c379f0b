"""How good are the features and the clusters: measures against true classes, pictures, and the report."""

from . import clustering, collapse, figures, knn, report, results

__all__ = ["clustering", "collapse", "figures", "knn", "report", "results"]
