"""What the evaluation tools found, as files beside the run: `<run>/evaluation/<name>.json`, one a tool and data set.

    {"tool": "knn", "date": ..., "model": {...}, "data": {...}, "settings": {...}, "rows": [{...}, ...]}

`model` says which checkpoint was judged, `data` on which images, `rows` is the table: flat, with plain values.
Reports, comparisons and model cards read them.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from ..atomic_file import write_atomically
from ..json_file import read_object

FOLDER = "evaluation"
KEYS = ("tool", "date", "model", "data", "settings", "rows")


def save(workdir, name, *, tool, model, data, settings, rows) -> Path:
    """Writes one result; one of the same name is replaced. `name`: letters, digits, . - _"""
    if not re.fullmatch(r"[\w][\w.-]*", name):
        raise ValueError(f"{name!r} cannot name a result. Use letters, digits, and . - _ only.")
    values = (tool, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), model, data, settings, rows)
    path = Path(workdir) / FOLDER / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(dict(zip(KEYS, values, strict=True)), indent=2, allow_nan=False) + "\n")
    return path


def load_all(workdir) -> dict[str, dict]:
    """name -> result, of all in the folder, in order of their names. Files that are not ours are refused."""
    found = {}
    for path in sorted((Path(workdir) / FOLDER).glob("*.json"), key=lambda path: path.stem):
        result = read_object(path, "a result of ours", "Remove it, or measure again.")
        if not is_result(result):
            raise ValueError(f"{path} is not a result of ours: it needs {', '.join(KEYS)}. Remove it.")
        found[path.stem] = result
    return found


def is_result(content: dict) -> bool:
    """Whether this has the form of what `save` writes."""
    kinds = (str, str, dict, dict, dict, list)
    return all(isinstance(content.get(key), kind) for key, kind in zip(KEYS, kinds, strict=True)) and all(
        isinstance(row, dict) for row in content["rows"]
    )
