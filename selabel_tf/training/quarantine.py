"""Images that cannot be decoded are found before the first step and set aside, once and for all.

    quarantine.csv      # selabel_tf quarantine, format 1
                        # examined: 1281167             images that were decoded once
                        id,reason
                        plates/0007.jpg,is not an image: it is empty

An image set aside is as if it had never been in the set: the others have the index that they would have without it.
Once there is a checkpoint the list stands. It is applied again, unseen, when the run is resumed and when tools read the
run folder; so an image that is mended, or removed, shifts no index. An image that goes bad later, or is added, makes
a set of another fingerprint than the checkpoint's. Until there is a checkpoint, each start looks at the images anew.

A set that is decoded into memory as it is opened needs no second look.
"""

import csv
import io
import re
from pathlib import Path

from ..atomic_file import write_atomically
from ..data import BadImage, inspect_folder, inspect_tfds
from ..export.labels_csv import harmless, original
from .assembly import make_source

FILE = "quarantine.csv"
TITLE = "# selabel_tf quarantine, format 1"
EXAMINED = r"# examined: \d+"
HEADER = ["id", "reason"]
NAMED = 5  # bad images in a message; the file has all


def settle(config, workdir, *, say=lambda text: None, on_progress=None):
    """The training images of the run in `workdir`, as a Source without those that cannot be decoded.

    Args:
        say: called with a sentence when some were set aside.
        on_progress: called with (images decoded, of how many).
    """
    path = Path(workdir) / FILE
    if path.is_file() and any((Path(workdir) / "checkpoints").glob("[!.]*")):  # whole or torn: there was one
        return make_source(config, without=_read(path))
    if config.data.source == "digits":
        return make_source(config)
    if config.data.source == "tfds":
        try:
            source = make_source(config)
            if source.in_memory:
                return source
        except BadImage:
            pass  # there may be more of them
    bad, examined = _inspect(config, on_progress)
    return _set_aside(config, path, bad, examined, say)


def set_aside(workdir) -> dict[str, str]:
    """id -> what is wrong, of the images that the run in `workdir` set aside."""
    path = Path(workdir) / FILE
    return _read(path) if path.is_file() else {}


def _inspect(config, on_progress):
    """({id: what is wrong}, number of images) of the training images."""
    examined = 0

    def count(done, total):
        nonlocal examined
        examined = total
        if on_progress is not None:
            on_progress(done, total)

    data = config.data
    if data.source == "folder":
        bad = inspect_folder(data.path, count)
    else:
        bad = inspect_tfds(data.name, data.split, data.data_dir or None, count)
    return bad, examined


def _set_aside(config, path, bad, examined, say):
    place = config.data.path or f"{config.data.name}/{config.data.split}"
    share = len(bad) / examined
    too_many = share > config.data.max_bad_share
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _text(bad, examined))
    named = [f"\n  {_shown(one)} {reason}" for one, reason in list(bad.items())[:NAMED]]
    named += [f"\n  and {len(bad) - NAMED} more"] * (len(bad) > NAMED)
    count = f"{len(bad)} of {examined} images of {place} cannot be used ({100 * share:.3g}%)"
    if too_many:
        raise ValueError(
            f"{count}, more than data.max_bad_share={config.data.max_bad_share:g} allows:{''.join(named)}\n"
            f"All are in {path}. Mend or remove them, or allow them to be left out: "
            f"--set data.max_bad_share={min(0.99, 1.1 * share):.2g}"
        )
    if bad:
        say(f"{count} and are left out; all are in {path}:{''.join(named)}")
    return make_source(config, without=bad)


def _shown(name):
    """A file name in a message: nothing in it can move the cursor of a terminal."""
    return name if name.isprintable() else repr(name)


def _text(bad, examined):
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n", quoting=csv.QUOTE_ALL)  # a name may hold any character
    writer.writerows((harmless(one), harmless(reason)) for one, reason in bad.items())
    head = [TITLE, f"# examined: {examined}", ",".join(HEADER)]
    return "\n".join(head) + "\n" + rows.getvalue()


def _read(path):
    """{id: reason} of a quarantine.csv."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")  # as it was written; file names may be any bytes
    *head, lines = text.split("\n", 3)
    try:
        rows = list(csv.reader(io.StringIO(lines, newline=""), strict=True))
    except csv.Error:
        rows = [()]
    known = len(head) == 3 and (head[0], head[2]) == (TITLE, ",".join(HEADER)) and re.fullmatch(EXAMINED, head[1])
    if not known or not text.endswith("\n") or any(len(row) != len(HEADER) for row in rows):
        raise ValueError(
            f"{path} is damaged: it is not the list of images that this run set aside. Bring it back; "
            "without it the labels of this run cannot be given to their images safely."
        )
    return {original(one): original(reason) for one, reason in rows}
