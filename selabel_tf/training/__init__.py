"""The experiment that ties data, models and labelling together."""

from .self_label_callback import NotConvergedWarning, SelfLabelCallback
from .sgd import CoupledSGD

__all__ = ["CoupledSGD", "NotConvergedWarning", "SelfLabelCallback"]
