"""What leaves the building: files that other programs read."""

from . import cluster_folders, confidence, labels, model_card

__all__ = ["cluster_folders", "confidence", "labels", "model_card"]
