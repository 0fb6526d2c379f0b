"""What a run writes down as it goes: metrics.jsonl for programs, TensorBoard events for eyes.

metrics.jsonl holds one JSON object per line, each with the training step it belongs to. A record counts once
its newline is written, so that a run killed in the middle of a line loses that line and nothing else.
"""

import json
import math
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

from selabel_tf.atomic_file import write_atomically


class RunLog:
    """The log of the run in `folder`: metrics.jsonl, and TensorBoard events under logs/."""

    def __init__(self, folder: str | Path):
        self.path = Path(folder) / "metrics.jsonl"
        self.events_folder = Path(folder) / "logs"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = None  # made by the first summary: a run that draws nothing leaves no empty event file
        self._file = None
        lines = _whole_lines(self.path) if self.path.exists() else []
        self._reopen(lines)

    def append(self, record: dict) -> None:
        """Writes one record, which must have an int "step". NaN and infinity, not in JSON, become null."""
        if type(record.get("step")) is not int:
            raise ValueError(f"A record needs an int 'step', but this one has {record.get('step')!r}: {record}.")
        self._file.write(json.dumps(_plain(record), allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())  # a checkpoint counts the records: they must not be lost behind it
        self.num_records += 1

    def rewind(self, step: int, num_records: int | None = None) -> None:
        """Drops what was logged after a checkpoint at `step`, so that a resumed run does not log it twice.

        A label pass between two epochs has the same step as the checkpoint before it. `num_records`, the
        log's own count when the checkpoint was written, tells such records apart; without it they are kept.
        """
        lines = _whole_lines(self.path)[:num_records]
        self._reopen([line for line in lines if json.loads(line)["step"] <= step])

    def scalars(self, step: int, values: dict) -> None:
        with self._events().as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def image(self, step: int, name: str, image) -> None:
        """`image`: uint8 [1, h, w, c], c = 1 or 3."""
        image = np.asarray(image)
        if image.dtype != np.uint8 or image.ndim != 4 or image.shape[0] != 1 or image.shape[3] not in (1, 3):
            raise ValueError(f"{name}: expected uint8 [1, h, w, 1 or 3], but got {image.dtype} {image.shape}.")
        with self._events().as_default(step=step):
            tf.summary.image(name, image)
        self._writer.flush()

    def close(self) -> None:
        self._file.close()
        if self._writer is not None:
            self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def _events(self):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self.events_folder))
        return self._writer

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


def _whole_lines(path):
    """The lines that end in a newline, each of them checked to be a JSON object with a step."""
    lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")[:-1]
    for number, line in enumerate(lines, start=1):
        if not _is_record(line):
            raise ValueError(f"{path}, line {number} is not a record: {line[:80]!r}. Mend or remove that line.")
    return lines


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
