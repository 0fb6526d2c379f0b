"""Self-labelling by optimal transport: networks trained on labels that nobody gave (SeLa, ICLR 2020)."""

from . import data, evaluation, export, labelling, models, training
from .models import SelfLabelModel, backbone
from .training import SelfLabelCallback

__version__ = "0.1.0"
__all__ = [
    "SelfLabelCallback",
    "SelfLabelModel",
    "backbone",
    "data",
    "evaluation",
    "export",
    "labelling",
    "models",
    "training",
]
