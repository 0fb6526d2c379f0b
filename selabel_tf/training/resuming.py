"""What a resumed run takes from its checkpoint besides the weights, and what it refuses to go on with."""

import math
from dataclasses import asdict, replace

from .. import json_file
from ..config import config_hash
from . import checkpoints
from .assembly import TrainingSet

PLACE = ("step", "epoch", "batch", "label_passes", "num_records", "num_events")  # where a run stands


def facts(config, source, labelling) -> dict:
    """What every checkpoint of a run says of the run."""
    return {
        "config_hash": config_hash(config),
        "training_set": asdict(TrainingSet.of(source)),
        "model": asdict(config.model),
        "storage": labelling.relabeller.plan.kind,
    }


def check(checkpoint, config, source) -> None:
    """Refuses a checkpoint of other images or of another network, and says what differs."""
    here = {"images": asdict(TrainingSet.of(source)), "model": asdict(config.model)}
    remedy = "Bring it back from a copy, or remove its folder: then the one before it serves."
    with json_file.trusting(checkpoint.path, "a checkpoint", remedy):
        there = {"images": checkpoint.facts["training_set"], "model": checkpoint.facts["model"]}
        changed = [
            f"{section}.{name}: {_plain(there[section].get(name))} -> {_plain(value)}"
            for section in here
            for name, value in here[section].items()
            if _plain(there[section].get(name)) != _plain(value)
        ]
        wrong = [name for name in PLACE if type(checkpoint.facts[name]) is not int or checkpoint.facts[name] < 0]
        if wrong:
            raise TypeError(f"{wrong[0]} {checkpoint.facts[wrong[0]]!r}")
        if not 0 <= seconds(checkpoint) < math.inf:
            raise TypeError(f"seconds {seconds(checkpoint)!r}")
    if changed:
        raise ValueError(
            f"Checkpoint {checkpoint.path} is of another run:\n  " + "\n  ".join(changed) + "\n"
            "Its labels belong to the images in that order, and its weights to that network. Bring these back, or give "
            "this run a --workdir of its own."
        )


def seconds(checkpoint) -> float:
    """What the epoch in progress had taken; of no checkpoint, and of those of earlier versions, nothing."""
    return checkpoint.facts.get("seconds", 0.0) if checkpoint else 0.0


def as_begun(config, checkpoint):
    """The config, with a storage of scores that gives the bits of the one that "auto" chose when the run began: half
    precision has bits of its own, and all others are alike."""
    if checkpoint is None or config.label.storage != "auto":
        return config
    begun = replace(config.label, storage=checkpoint.facts["storage"])  # which refuses what is no storage
    return replace(config, label=begun if begun.storage == "half" else replace(begun, storage="exact"))


def restore(checkpoint, model, labelling, log, say) -> int:
    """Puts model, label passes and log where the checkpoint was written; the step to go on with."""
    checkpoints.remove_leftovers(log.path.parent / "checkpoints")
    if checkpoint is None:
        if log.num_records:
            say("No checkpoint was written yet: beginning anew")
        log.rewind(num_records=0, num_events=0)
        return 0
    at = checkpoint.facts
    checkpoints.restore(checkpoint, model)
    labelling.passes_done = at["label_passes"]
    if log.num_records < at["num_records"]:
        say(
            f"{log.path} has {log.num_records} records, and had {at['num_records']} when the checkpoint was written. "
            "Curves will have a gap; training does not depend on them"
        )
    log.rewind(at["num_records"], at["num_events"])
    say(
        f"Resuming at step {at['step']} (epoch {at['epoch'] + 1}, batch {at['batch'] + 1}), "
        f"after {at['label_passes']} label passes, from {checkpoint.path}"
    )
    return at["step"]


def _plain(value):
    """As JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value
