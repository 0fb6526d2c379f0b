"""Images sorted into one folder per cluster, to be looked at.

    folder/cluster-03/plates_0001.png

The name of an image is its id as one path component: folders within an id become part of the name, so that no id
leads out of the folder, and equal names from several class folders do not meet. Where two still do, on any file
system, the later gets a number. The folder appears when it is complete, or not at all.
"""

import errno
import os
import re
import secrets
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import tensorflow as tf

LINKS = {"symlink": os.symlink, "hard": os.link, "copy": shutil.copy2}
FORBIDDEN = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|\ud800-\udfff]')  # in a file name, on one system or another
LONGEST = 200  # bytes of a file name; file systems allow 255


def check_new(folder, images=None):
    """Refuses a folder that holds something, or that lies in the folder `images` which it is to be filled from."""
    folder = Path(folder).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and is not an empty folder. Sort into a new one: nothing is overwritten.")
    if images is not None and folder.is_relative_to(Path(images).resolve()):
        raise ValueError(
            f"{folder} lies within {images}, whose images are to be sorted: they would be found there again next "
            "time. Sort into a folder elsewhere."
        )


def sort_into(folder, clusters, num_clusters, names, place, on_image=None):
    """Fills the new `folder` with images.

    Args:
        clusters: [N], of each image.
        names: N ids with the ending that the files shall have.
        place: called with (row, path) to put the image of that row at that path; see `links` and `pictures`.
        on_image: called with the number of images done.
    """
    check_new(folder)
    folder = Path(folder).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.parent / f".{secrets.token_hex(8)}.tmp"
    digits = len(str(num_clusters - 1))
    taken = {}
    try:
        unfinished.mkdir()
        for row, (cluster, name) in enumerate(zip(clusters, names, strict=True)):
            inside = unfinished / f"cluster-{int(cluster):0{digits}d}"
            if cluster not in taken:
                inside.mkdir()
            place(row, inside / _free(file_name(name), taken.setdefault(cluster, {})))
            if on_image is not None:
                on_image(row + 1)
        if folder.exists():
            folder.rmdir()  # fails if it is not empty any more
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def links(folder, ids, link):
    """`place` for images that are files: `folder`/ids[row], by one of LINKS."""
    root, make = Path(folder).resolve(), LINKS[link]

    def place(row, path):
        try:
            make(root / ids[row], path)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EPERM):
                raise ValueError(
                    f"A {link} link from {path.parent.parent.parent} to {root} is not possible ({error.strerror}). "
                    "Copy the images instead: --link=copy."
                ) from error
            raise

    return place


def pictures(source):
    """`place` for images that are no files: they are written as PNG, as stored, before any augmentation."""

    def place(row, path):
        (image,) = source.stored_images([row])
        if image.dtype != np.uint8:
            image = np.round(255 * image).astype(np.uint8)
        path.write_bytes(tf.io.encode_png(image).numpy())

    return place


def file_name(name):
    """`name` as one component of a path, on any system: no separators, not hidden, not too long."""
    name = re.sub(r"^\.|[. ]$", "_", FORBIDDEN.sub("_", name)) or "_"
    if len(name.encode()) <= LONGEST:
        return name
    stem, ending = os.path.splitext(name)
    ending = ending if len(ending.encode()) <= 16 else ""
    return stem.encode()[: LONGEST - len(ending.encode())].decode(errors="ignore") + ending


def _free(name, taken):
    """`name`, with a number if it is taken already; case and composition of letters do not tell names apart.

    taken: name -> the last number tried behind it.
    """
    (stem, ending), candidate = os.path.splitext(name), name
    while _folded(candidate) in taken:
        taken[_folded(name)] += 1
        candidate = f"{stem}-{taken[_folded(name)]}{ending}"
    taken[_folded(candidate)] = 1
    return candidate


def _folded(name):
    return unicodedata.normalize("NFC", name.casefold())
