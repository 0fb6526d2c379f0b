"""Log-probabilities -> labels."""

from . import relabel, rounding, schedule, sinkhorn, storage

__all__ = ["relabel", "rounding", "schedule", "sinkhorn", "storage"]
