"""A probe, or a fine-tuning, that was cut short goes on where it was: a file with its state and its settings.

The file is an npz: `about` is JSON {"settings": {...}, "done": epochs or layers}, and v000, v001, ... are the variables
in their order. It is written as a whole or not at all, and removed when the probe's result is kept.
"""

import io
import json
import operator
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from ..atomic_file import write_atomically
from ..json_file import parse

# What NumPy, zipfile and JSON raise of a file that is torn, or was never ours: an absurd shape wants absurd memory.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, MemoryError, OverflowError)
UNREADABLE += (zipfile.BadZipFile, zlib.error, struct.error)


class UnfinishedProbe:
    """The state in the file `path`.

    settings: all that the outcome depends on, as plain values: a state of other settings is not gone on from.
    say: called with one sentence when a state is found. what: the name of what is unfinished, in that sentence.
    """

    def __init__(self, path, settings, say=lambda text: None, what="probe"):
        self.path, self.say, self.what = Path(path), say, what
        self.settings = json.loads(json.dumps(settings))  # as it will be read back: no tuples

    def save(self, variables, done):
        """Keeps the values of `variables`, `done` epochs or layers being finished."""
        arrays = {_key(number): variable.numpy() for number, variable in enumerate(variables)}
        about = json.dumps({"settings": self.settings, "done": done})
        buffer = io.BytesIO()
        np.savez(buffer, about=np.array(about), **arrays)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, buffer.getvalue())

    def restore(self, variables) -> int:
        """Gives `variables` their saved values; how many epochs or layers are done, 0 where nothing was restored."""
        if not self.path.is_file():
            return 0
        try:
            _refuse_bomb(self.path)
            with np.load(self.path, allow_pickle=False) as file:
                about = parse(str(file["about"]))
                settings, done = dict(about["settings"]), operator.index(about["done"])
                values = [file[_key(number)] for number in range(len(file.files) - 1)]
        except UNREADABLE:  # nothing is lost by beginning anew
            self.say(f"{self.path} cannot be read: starting anew.")
            return 0
        changed = sorted(
            name for name in settings.keys() | self.settings if settings.get(name) != self.settings.get(name)
        )
        if not changed and [value.shape for value in values] != [tuple(variable.shape) for variable in variables]:
            changed = ["the shapes of its variables"]
        if changed:
            self.say(f"An unfinished {self.what} with other settings was found ({', '.join(changed)}): starting anew.")
            return 0
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        self.say(f"Going on with an unfinished {self.what}, {done} done.")
        return done

    def remove(self):
        self.path.unlink(missing_ok=True)


def _refuse_bomb(path):
    """`save` does not compress: what unpacks to more than the file was not written by it."""
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
            raise ValueError(f"{path} unpacks to more than it is")


def _key(number):
    return f"v{number:03d}"
