"""Image -> features -> logits per head."""

from .backbones import backbone
from .heads import MultiHead
from .label_store import LabelStore
from .projection import Projection
from .self_label_model import SelfLabelModel

__all__ = ["LabelStore", "MultiHead", "Projection", "SelfLabelModel", "backbone"]
