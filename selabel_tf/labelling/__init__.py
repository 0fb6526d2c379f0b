"""Log-probabilities -> labels."""

from . import kmeans, relabel, rounding, schedule, sinkhorn, storage

__all__ = ["kmeans", "relabel", "rounding", "schedule", "sinkhorn", "storage"]
