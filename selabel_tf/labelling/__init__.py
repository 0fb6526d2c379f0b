"""Log-probabilities -> labels."""

from . import relabel, rounding, schedule, sinkhorn

__all__ = ["relabel", "rounding", "schedule", "sinkhorn"]
