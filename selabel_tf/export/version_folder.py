"""Numbered version folders as TF Serving reads them: <parent>/1, <parent>/2, ...

An export is written aside, in a hidden folder of the same parent, and renamed when everything about it has succeeded.
So a number is there whole or not at all, and an existing one is never touched.
"""

import errno
import json
import os
import secrets
import shutil
from pathlib import Path

from ..atomic_file import write_atomically

FACTS = "model.json"  # beside every exported file: what it is and how its images are prepared


def publish(parent, file, write, check=None) -> Path:
    """Makes the next version under `parent` and returns its folder.

    Args:
        file: the file that tells the format, e.g. "model.tflite". A parent holds versions of one format only.
        write: called with the folder to fill.
        check: called with the filled folder before it gets its number; an error of either leaves nothing behind.
    """
    parent = Path(parent)
    if parent.exists() and not parent.is_dir():
        raise ValueError(f"{parent} is a file. Give a folder, in which exports are numbered 1, 2, ...")
    for version in versions(parent):
        if not (version / file).exists():
            raise ValueError(
                f"{parent} holds versions without {file}, such as {version}: it is the place of another format, and "
                "what serves it would stumble. Give this export a folder of its own."
            )
    parent.mkdir(parents=True, exist_ok=True)
    aside = parent / f".unfinished-{secrets.token_hex(6)}"
    aside.mkdir()
    try:
        write(aside)
        if check is not None:
            check(aside)
        return _renamed(aside, parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def versions(parent) -> list[Path]:
    """The version folders under `parent`, in the order of their numbers."""
    found = [path for path in Path(parent).glob("*") if path.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name))


def write_facts(folder, facts):
    """model.json in `folder`."""
    write_atomically(Path(folder) / FACTS, json.dumps(facts, indent=1, allow_nan=False) + "\n")


def _renamed(aside, parent):
    number = max((int(path.name) for path in versions(parent)), default=0) + 1
    while True:
        target = parent / str(number)
        try:
            if not target.exists():  # an empty folder would be replaced without a word
                os.rename(aside, target)
                return target
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        number += 1  # another export took this number meanwhile
