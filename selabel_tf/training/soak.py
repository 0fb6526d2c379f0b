"""Does a run that is killed again and again end as one that never was?

    reference   one run, left alone
    lives       the same run, each life forked, killed by SIGKILL at some moment, and followed by the next one, until
                a life comes to the run's end; then everything that the two leave must be equal, bit for bit

Moments of four kinds, since no clock would hit the short ones:

    clock       so many seconds after the life's beginning
    write       before the n-th time that it forces something to disk, renames it or removes it
    state       before the n-th variable of a checkpoint is written: the file has those before it, or a part of them
    labels      before the n-th time that a head gets new labels

Importing takes seconds and a fork none, so lives are forked from a process that has imported TensorFlow only.
"""

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..labelling.relabel import Relabeller
from . import checkpoints, experiment
from .run_log import TIMING, read_events, read_records

COUNTED = {  # kind of moment -> (where, which functions are counted, drawn up to this many)
    "write": (os, ("fsync", "rename", "replace", "unlink", "rmdir"), 120),
    "state": (np.lib.format, ("write_array",), 600),
    "labels": (Relabeller, ("_relabel",), 6),
}
KINDS = ("clock", *COUNTED)


@dataclass(frozen=True)
class Moment:
    """When a life ends. count: seconds, or how many of COUNTED."""

    kind: str
    count: float

    def arm(self):
        """In the life itself: what is counted ends it."""
        if self.kind in COUNTED:
            place, names, _ = COUNTED[self.kind]
            count = _Countdown(self.count)
            for name in names:
                setattr(place, name, count.before(getattr(place, name)))


class _Countdown:
    def __init__(self, count):
        self.left = count

    def before(self, function):
        def counted(*args, **options):
            self.left -= 1
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return counted


@dataclass(frozen=True)
class Soak:
    """What came of it. `unequal`: for each run that did not end as the reference, what differs."""

    kills: dict  # kind of moment -> how many lives ended so
    runs: int  # each compared with the reference
    compared: tuple[str, ...]  # what of each
    unequal: tuple[dict, ...]
    seconds: float


def soak(config, folder, *, kills, seed, say=lambda text: None, on_run=lambda soak: None, kinds=KINDS):
    """Kills runs of `config` in `folder`, one after the other, until there were `kills`; the last one ends in peace.

    A life that ends with an error ends the soak, as a ValueError with its traceback. on_run: called with the Soak so
    far after every run; the last one is returned.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    generator = np.random.Generator(np.random.Philox(seed))
    before = time.monotonic()
    _live(config, folder / "reference")
    duration = time.monotonic() - before
    wanted = _ending_apart(folder / "reference")
    done, runs, unequal = dict.fromkeys(kinds, 0), 0, []
    while sum(done.values()) < kills:
        workdir, moments = folder / "killed", []
        shutil.rmtree(workdir, ignore_errors=True)
        while True:
            moment = _draw(generator, kinds, duration) if sum(done.values()) < kills else None
            if not _live(config, workdir, moment):
                break
            done[moment.kind] += 1
            moments.append(moment)
            say(f"kill {sum(done.values())} of {kills}: {moment.kind} {moment.count:.3g}, {_place(workdir)}")
        runs += 1
        differs = {name: value for name, value in _ending_apart(workdir).items() if value != wanted[name]}
        if differs:
            unequal.append({"differs": sorted(differs), "moments": [[m.kind, m.count] for m in moments]})
            shutil.copytree(workdir, folder / f"unequal-{runs}")
        say(f"run {runs} ended after {len(moments)} kills: {'UNEQUAL ' + str(differs) if differs else 'equal'}")
        result = Soak(dict(done), runs, tuple(wanted), tuple(unequal), time.monotonic() - start)
        on_run(result)
    return result


def ending(workdir) -> dict:
    """Hashes of what a finished run leaves, without what tells the time."""
    workdir = Path(workdir)
    checkpoint = checkpoints.latest(workdir / "checkpoints")
    facts, *records = [
        {k: v for k, v in timed.items() if k not in TIMING}
        for timed in (checkpoint.facts, *read_records(workdir / "metrics.jsonl"))
    ]
    events = [event for event in read_events(workdir / "logs") if event[1].rpartition("/")[2] not in TIMING]
    numbers = json.loads((workdir / "results.json").read_bytes())["numbers"]
    return {
        "state": checkpoint.sha256,  # weights, optimizer, labels, log-scalings, seeds and metrics
        "position": _hash(json.dumps(facts, sort_keys=True).encode()),
        "labels.csv": _hash((workdir / "labels.csv").read_bytes()),
        "metrics.jsonl": _hash(json.dumps(records).encode()),
        "events": _hash(repr(events).encode()),
        "results.json": _hash(json.dumps(numbers).encode()),
    }


def _ending_apart(workdir):
    """`ending` by a process of its own: it starts threads of TensorFlow, and after these a fork may wait for ever."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(ending, (workdir,))


def _draw(generator, kinds, duration):
    kind = kinds[generator.integers(len(kinds))]
    if kind == "clock":
        return Moment(kind, float(generator.uniform(0, duration)))
    return Moment(kind, int(generator.integers(1, COUNTED[kind][2])))


def _live(config, workdir, moment=None):
    """One life, until its end or `moment`; whether it was killed."""
    errors = workdir.parent / "errors.txt"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            descriptor = os.open(errors, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(descriptor, 2)
            if moment is not None:
                moment.arm()
            experiment.run(config, workdir)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if moment is not None and moment.kind == "clock":
        end = time.monotonic() + moment.count
        while time.monotonic() < end and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise ValueError(f"A life ended with an error:\n{errors.read_text(errors='replace')}")
    return os.WIFSIGNALED(status)


def _place(workdir):
    """Where the next life will go on."""
    paths = sorted((workdir / "checkpoints").glob("step-*"))
    return f"at {paths[-1].name}" if paths else "before the first checkpoint"


def _hash(data):
    return hashlib.sha256(data).hexdigest()
