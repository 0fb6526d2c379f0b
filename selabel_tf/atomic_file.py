"""A file is either the old one or the whole new one, never half of one.

The bytes go to a temporary file in the same folder and are forced to disk; the temporary file is then renamed
over the target, which within one folder is atomic. Forcing the folder to disk too makes the new name outlive
a power cut.
"""

import contextlib
import os
import secrets
from pathlib import Path


@contextlib.contextmanager
def atomic_file(path, mode="w"):
    """Open a file object for writing; `path` changes only when the block ends without an error.

    mode: "w" (UTF-8 text, line ends as written) or "wb". File names that are no valid UTF-8 reach Python as
    lone surrogates; text mode writes their original bytes back instead of failing.
    """
    if mode not in ("w", "wb"):
        raise ValueError(f"mode={mode!r}: an atomic file is written as a whole. Use 'w' for text or 'wb' for bytes.")
    target = Path(path).resolve()  # a link keeps pointing at the file behind it, which is what gets replaced
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"Cannot write {target.name}: the folder {target.parent} does not exist. Create it first."
        )
    if target.is_dir():
        raise IsADirectoryError(f"Cannot write {target}: it is a folder. Give the path of a file.")

    temporary = target.parent / f".{secrets.token_hex(8)}.tmp"
    text = {} if mode == "wb" else {"encoding": "utf-8", "errors": "surrogateescape", "newline": ""}
    try:
        # Mode "x" creates with the permissions of any new file (umask); tempfile would leave it private.
        with open(temporary, mode.replace("w", "x"), **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def write_atomically(path, data: bytes | str):
    """Write `data` as the whole content of the file `path`."""
    if not isinstance(data, bytes | str):
        raise TypeError(f"A file holds bytes or text, but data is of type {type(data).__name__}.")
    with atomic_file(path, "w" if isinstance(data, str) else "wb") as file:
        file.write(data)


def remove_leftovers(folder):
    """Removes what a kill in the middle of `atomic_file` left in `folder`. Nobody may be writing there meanwhile."""
    for path in Path(folder).glob(f".{'[0-9a-f]' * 16}.tmp"):
        path.unlink(missing_ok=True)


def sync_folder(folder):
    """Forces the names in a folder to disk, as fsync does with the content of a file."""
    if os.name != "posix":  # elsewhere a folder cannot be opened, and the rename is all there is
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
