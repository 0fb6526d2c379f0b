"""An experiment as one frozen, validated value.

A `Config` is sections of plain numbers, words and tuples: it can be compared, hashed, written as JSON, and changed
on a command line (`section.field=value`) with its types checked.
"""

from .sections import Augment, Config, Data, Evaluation, Label, Model, Optimizer
from .text import assignments, config_hash, differences, from_json, load, override, read, to_json

__all__ = [
    "Augment",
    "Config",
    "Data",
    "Evaluation",
    "Label",
    "Model",
    "Optimizer",
    "assignments",
    "config_hash",
    "differences",
    "from_json",
    "load",
    "override",
    "read",
    "to_json",
]
