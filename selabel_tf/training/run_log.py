"""What a run writes down as it goes: metrics.jsonl for programs, TensorBoard events for eyes.

metrics.jsonl holds one JSON object per line, each with the training step it belongs to. A record counts once
its newline is written, so that a run killed in the middle of a line loses that line and nothing else.

A resumed run makes again what came after its checkpoint. So both are cut back to the `position` that the checkpoint
knows of, and hold everything once.
"""

import contextlib
import errno
import json
import math
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

from selabel_tf.atomic_file import write_atomically

TIMING = ("images_per_second", "seconds")  # fields of records and of checkpoints' facts that no two runs have alike
EARLIER_EVENTS = "events.out.tfevents.0.earlier"  # comes first in TensorBoard's order: others have the time for the 0


class RunLog:
    """The log of the run in `folder`: metrics.jsonl, and TensorBoard events under logs/."""

    def __init__(self, folder: str | Path):
        self.path = Path(folder) / "metrics.jsonl"
        self.events_folder = Path(folder) / "logs"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.num_events = len(_events(self.events_folder))
        self._writer = None  # made by the first summary: a run that draws nothing leaves no empty event file
        self._file = None
        lines = _whole_lines(self.path) if self.path.exists() else []
        self._reopen(lines)

    def append(self, record: dict) -> None:
        """Writes one record, which must have an int "step". NaN and infinity, not in JSON, become null."""
        if type(record.get("step")) is not int:
            raise ValueError(f"A record needs an int 'step', but this one has {record.get('step')!r}: {record}.")
        line = json.dumps(_plain(record), allow_nan=False) + "\n"
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())  # a checkpoint counts the records: they must not be lost behind it
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self.num_records += 1

    def position(self) -> dict:
        """How much has been logged, for the checkpoint that `rewind` goes back to."""
        return {"num_records": self.num_records, "num_events": self.num_events}

    def rewind(self, num_records: int, num_events: int) -> None:
        """Drops what was logged after a `position`, so that a resumed run does not log it twice."""
        self._reopen(_whole_lines(self.path)[:num_records])
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        files, events = _event_files(self.events_folder), _events(self.events_folder)[:num_events]
        self.num_events = len(events)
        if events:
            aside = self.events_folder / ".earlier"
            with tf.io.TFRecordWriter(str(aside)) as file:
                file.write(tf.compat.v1.Event(file_version="brain.Event:2").SerializeToString())
                for event in events:
                    file.write(event)
            aside.replace(self.events_folder / EARLIER_EVENTS)
            files = [path for path in files if path.name != EARLIER_EVENTS]
        for path in files:
            path.unlink()

    def scalars(self, step: int, values: dict) -> None:
        with self._summaries(step, len(values)):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def image(self, step: int, name: str, image) -> None:
        """`image`: uint8 [1, h, w, c], c = 1 or 3."""
        image = np.asarray(image)
        if image.dtype != np.uint8 or image.ndim != 4 or image.shape[0] != 1 or image.shape[3] not in (1, 3):
            raise ValueError(f"{name}: expected uint8 [1, h, w, 1 or 3], but got {image.dtype} {image.shape}.")
        with self._summaries(step, 1):
            tf.summary.image(name, image)

    def close(self) -> None:
        self._file.close()
        if self._writer is not None:
            with contextlib.suppress(tf.errors.ResourceExhaustedError):  # it has been told when it came up
                self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    @contextlib.contextmanager
    def _summaries(self, step, count):
        """Where tf.summary writes `count` events of a step."""
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self.events_folder))
        try:
            with self._writer.as_default(step=step):
                yield
            self._writer.flush()
        except tf.errors.ResourceExhaustedError as error:  # TensorFlow's word for a full disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.events_folder)) from error
        self.num_events += count

    def _reopen(self, lines):
        """Makes `lines` the whole of the file, a torn tail included in what goes, and opens it at its end."""
        if self._file is not None:
            self._file.close()
        write_atomically(self.path, "".join(f"{line}\n" for line in lines))
        self.num_records = len(lines)
        self._file = self.path.open("a", encoding="utf-8")


def read_records(path: str | Path) -> list[dict]:
    """The records of a metrics.jsonl, without a torn last line."""
    return [json.loads(line) for line in _whole_lines(Path(path))]


def read_events(folder: str | Path) -> list[tuple[int, str, bytes]]:
    """(step, tag, serialized value) of all that TensorBoard would show from `folder`, in the order of writing."""
    events = [tf.compat.v1.Event.FromString(raw) for raw in _events(Path(folder))]
    return [
        (event.step, value.tag, value.tensor.SerializeToString()) for event in events for value in event.summary.value
    ]


def _whole_lines(path):
    """The lines that end in a newline, each of them checked to be a JSON object with a step."""
    lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")[:-1]
    for number, line in enumerate(lines, start=1):
        if not _is_record(line):
            raise ValueError(f"{path}, line {number} is not a record: {line[:80]!r}. Mend or remove that line.")
    return lines


def _event_files(folder):
    """In the order of their times, which their names begin with."""
    return sorted(folder.glob("events.out.tfevents.*"))


def _events(folder):
    """The events with summaries in them, serialized; a torn last one of a file is left out."""
    found = []
    for path in _event_files(folder):
        try:
            for raw in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                if tf.compat.v1.Event.FromString(raw).HasField("summary"):
                    found.append(raw)
        except tf.errors.DataLossError:
            continue
    return found


def _is_record(line):
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and type(record.get("step")) is int


def _plain(value):
    """`value` as JSON knows it: NumPy's numbers and arrays unpacked, numbers that are not finite as None."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
