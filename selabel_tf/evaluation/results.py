"""What the evaluation tools found, as files beside the run: `<run>/evaluation/<name>.json`, one a tool and data set.

    {"tool": "knn", "date": ..., "model": {...}, "data": {...}, "settings": {...}, "rows": [{...}, ...]}

`model` says which checkpoint was judged, `data` on which images, `rows` is the table: flat, with plain values.
Reports, comparisons and model cards read them.
"""

import json
import re
import tempfile
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


def check_writable(workdir) -> None:
    """Refuses a run folder that no result could be kept in: to be asked before the work, which may take hours."""
    folder = Path(workdir) / FOLDER
    try:
        with tempfile.TemporaryFile(dir=folder if folder.exists() else workdir):
            pass
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written ({error.strerror}), and that is where results are kept. Make it writable, or "
            "copy the run folder and judge the copy."
        ) from None


def load_all(workdir) -> dict[str, dict]:
    """name -> result, of all in the folder, in order of their names. Files that are not ours are refused."""
    found = {}
    for path in sorted((Path(workdir) / FOLDER).glob("*.json"), key=lambda path: path.stem):
        result = read_object(path, "a result of ours", "Remove it, or measure again.")
        if not is_result(result):
            raise ValueError(f"{path} is not a result of ours: it needs {', '.join(KEYS)}. Remove it.")
        found[path.stem] = result
    return found


def own_features_last(found) -> list[dict]:
    """Results of chosen layers first: those of the network's own features then stand last, and count where both have a
    layer."""
    return sorted(found, key=lambda result: not (result["settings"] or {}).get("chosen_layers"))


def apart(found) -> list[str]:
    """What has to be said of the images of each result, behind their name, to tell them from those of the others: how
    they were shown, where that was not as in training, and of two sets of the same name the fingerprint."""
    shown = ["".join(f", {change}" for change in result["data"].get("changes", ())) for result in found]
    names = [(result["data"]["train"]["name"], how) for result, how in zip(found, shown, strict=True)]
    prints = [str(result["data"]["train"].get("fingerprint", ""))[:8] for result in found]
    several = {name for name in names if len({p for n, p in zip(names, prints, strict=True) if n == name}) > 1}
    return [how + f" ({digits})" * (name in several) for how, name, digits in zip(shown, names, prints, strict=True)]


def is_result(content: dict) -> bool:
    """Whether this has the form of what `save` writes."""
    kinds = (str, str, dict, dict, dict, list)
    return all(isinstance(content.get(key), kind) for key, kind in zip(KEYS, kinds, strict=True)) and all(
        isinstance(row, dict) for row in content["rows"]
    )
