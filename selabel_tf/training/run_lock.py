"""One run in one folder: who trains holds a lock on a file there, and the system frees it when the process ends.

The lock is `flock`'s and not the file's presence: the file that a killed run leaves behind locks nothing.
"""

import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path

FILE = ".lock"


@contextlib.contextmanager
def locked(workdir: str | Path):
    """Holds the run folder, made if missing, or refuses with a ValueError that says who does.

    A folder with nothing in it is removed at the end: a run that was refused leaves no trace.
    """
    workdir = Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    path = workdir / FILE
    file = _lock(path)
    try:
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is locked: whoever waits at this file finds that it is gone
        file.close()
        with contextlib.suppress(OSError):  # it is not empty
            workdir.rmdir()


def _lock(path):
    """The locked, open file at `path`."""
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, file):  # and not one that its holder has just removed
                return file
        except BlockingIOError:
            file.seek(0)
            owner = _owner(file.read())
            file.close()
            raise ValueError(
                f"{path.parent} is in use: a run{owner} trains there. Wait for its end, stop it (SIGTERM lets it "
                "save), or give this run a --workdir of its own."
            ) from None
        file.close()


def _is_at(path, file):
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _owner(text):
    """ " (process 123 on somewhere)", or nothing where the holder has not written it yet."""
    try:
        owner = json.loads(text)
        return f" (process {owner['pid']} on {owner['host']})"
    except (ValueError, KeyError, TypeError):
        return ""
