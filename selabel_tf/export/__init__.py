"""What leaves the building: files that other programs read."""

from . import labels

__all__ = ["labels"]
