"""Is this machine, and is this folder, fit for that run? What is looked at, what was found, and what to do about it.

    environment     Python and the packages, against the ranges this version was tested with; devices
    memory          what a label pass needs (labelling.storage plans it), and images that are held in memory
    disk            checkpoints, the scores of a label pass where they go to disk
    images          there, readable, as many as the run needs
    run folder      can be written

Nothing is trained and nothing is kept. Training asks the same at its start.
"""

import importlib.metadata
import math
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from packaging.requirements import Requirement

from ..data import BadImage
from ..labelling import storage
from . import assembly, assessment, checkpoints, distribution, experiment

GOOD, NOTE, BAD = "ok", "note", "to fix"
TRIED = 16  # images that are decoded for a trial, evenly spread
LEAST_FREE = 256 * 2**20  # bytes of disk for everything else that a run writes
DISTRIBUTION = "selabel_tf"
TESTED_PYTHON = ((3, 11), (3, 13))


@dataclass(frozen=True)
class Finding:
    """what: was looked at; state: GOOD, NOTE or BAD; seen: what was found; remedy: what to do, "" where nothing is."""

    what: str
    state: str
    seen: str
    remedy: str = ""

    def __str__(self):
        return f"{self.what}: {self.seen}." + f" {self.remedy}" * bool(self.remedy)


def examine(config=None, workdir=None) -> list[Finding]:
    """All findings: of the environment, and of a run of `config` in `workdir`, where these are given."""
    findings = [*environment(), *devices()]
    if workdir is not None:
        findings += folder(config, workdir)
    if config is not None:
        findings += run(config, workdir)
    return findings


def environment() -> list[Finding]:
    """Python and the packages that the project's own description asks for."""
    version = sys.version_info[:2]
    low, high = TESTED_PYTHON
    tested = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
    fits = low <= version <= high
    remedy = "" if fits else f"Use a Python from {tested}."
    found = [Finding("Python", GOOD if fits else BAD, f"{platform.python_version()} (tested: {tested})", remedy)]
    try:
        wanted = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        seen, remedy = "not installed: its needs cannot be compared", "Install it: pip install -e ."
        return [*found, Finding("this package", NOTE, seen, remedy)]
    requirements = [Requirement(text) for text in wanted]
    return found + [package(one) for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]


def package(requirement) -> Finding:
    """Whether a package is there in a version that was tested."""
    remedy = f'Install it: pip install "{requirement}"'
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(requirement.name, BAD, f"missing (tested: {requirement.specifier})", remedy)
    fits = requirement.specifier.contains(version, prereleases=True)
    seen = f"{version} (tested: {requirement.specifier})"
    return Finding(requirement.name, GOOD if fits else BAD, seen, "" if fits else remedy)


def devices() -> list[Finding]:
    gpus = [device.name for device in tf.config.list_physical_devices("GPU")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if gpus:
        return [Finding("devices", GOOD, f"{len(gpus)} GPU, {cores} CPU core{'s' * (cores > 1)}")]
    remedy = "Real photographs at 224 want a GPU; the configs *_cpu are cut to fit."
    return [Finding("devices", NOTE, f"no GPU, {cores} CPU core{'s' * (cores > 1)}", remedy)]


def folder(config, workdir) -> list[Finding]:
    """Whether the run folder can be written, and is free for this run."""
    workdir = Path(workdir).absolute()
    try:
        if config is not None:
            experiment.check_folder(config, workdir)
        there = next(path for path in (workdir, *workdir.parents) if path.exists())
        with tempfile.NamedTemporaryFile(dir=there, prefix=".doctor-"):
            pass
    except (ValueError, OSError) as error:
        remedy = "" if isinstance(error, ValueError) else "Choose another --workdir, or allow writing there."
        return [Finding("run folder", BAD, str(error), remedy)]
    return [Finding("run folder", GOOD, f"{workdir} can be written")]


def at_start(workdir) -> list[Finding]:
    """What a run should be told before it begins; images and memory it looks at itself."""
    return [finding for finding in (*environment(), _disk(0, workdir)) if finding.state == BAD]


def run(config, workdir) -> list[Finding]:
    """What the images are, and whether a run on them fits into memory and on the disk."""
    try:
        source = assembly.make_source(config)
        rows = np.unique(np.linspace(0, source.num_examples - 1, TRIED).astype(int))
        source.stored_images(rows)
    except BadImage as error:
        return [Finding("images", NOTE, str(error), "Training leaves such images out: data.max_bad_share.")]
    except (ValueError, OSError) as error:
        return [Finding("images", BAD, str(error))]
    shape = "x".join(map(str, source.image_shape))
    held = "held in memory" if source.in_memory else f"read when needed, {len(rows)} decoded for a trial"
    found = [Finding("images", GOOD, f"{source.num_examples} of {shape} in {source.name}, {held}")]
    try:
        distribution.check_batch(config.batch_size, distribution.strategy().num_replicas_in_sync, source.num_examples)
        model = assembly.make_model(config, source)
        labelling = assembly.make_labelling(config, source, scratch=workdir)
        labelling.check(model, config.epochs, assembly.steps_per_epoch(config, source))
        assessment.check(config, source)
    except ValueError as error:
        return [*found, Finding("settings and memory", BAD, str(error))]
    found.append(Finding("memory", GOOD, labelling.relabeller.plan.reason))
    if workdir is not None:
        variables = (*model.variables, *model.optimizer.variables)
        found.append(_disk(sum(math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in variables), workdir))
    return found


def _disk(state, workdir):
    """Whether checkpoints, of `state` bytes each, and all else that a run writes fit on the disk of `workdir`."""
    needed, free = (checkpoints.KEPT + 1) * state + LEAST_FREE, storage.available_disk(workdir)
    use = f" for checkpoints of {_size(state)} and the rest" if state else ""
    seen = f"{_size(free)} free, {_size(needed)} wanted{use}"
    if needed > free:
        return Finding("disk", BAD, seen, "Free some, or choose a --workdir on another disk.")
    return Finding("disk", GOOD, seen)


def _size(count):
    return f"{count / 2**20:,.1f} MiB"
