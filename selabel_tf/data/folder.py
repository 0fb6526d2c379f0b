"""The image files of a folder, in the order that gives them their index.

Either all lie directly in the folder, or all in one sub-folder per class. They are sorted by relative path; hidden ones
are passed over. Some may be left out by name: the rest is then the folder as if those had never been in it.
"""

import pathlib
from dataclasses import dataclass

from selabel_tf.data.image_header import FORMATS


@dataclass(frozen=True)
class Folder:
    """paths: of the files, in index order; ids: the same relative to the folder; class_names: of its sub-folders."""

    root: pathlib.Path
    paths: tuple[pathlib.Path, ...]
    ids: tuple[str, ...]
    class_names: tuple[str, ...]


def open_folder(path, without=()) -> Folder:
    """The files of the folder `path` but those whose ids are `without`."""
    root = pathlib.Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder. Give the path of a folder that holds images.")
    folders, loose = _listing(root)
    if folders and loose:
        raise ValueError(
            f"{root} holds both loose files ({loose[0].name}, ...) and sub-folders ({folders[0].name}, ...). "
            "Either put all images directly in it, or all in one sub-folder per class."
        )
    files = loose
    for folder in folders:
        deeper, inside = _listing(folder)
        if deeper or not inside:
            what = f"holds the folder {deeper[0].name}" if deeper else "is empty"
            raise ValueError(f"The class folder {folder} {what}. It must hold image files only.")
        files = files + inside
    by_id = {file.relative_to(root).as_posix(): file for file in files}
    for one in without:
        by_id.pop(one, None)
    if not by_id:
        raise ValueError(f"{root} holds no images. Expected files ({FORMATS}), or one sub-folder of them per class.")
    ids = sorted(by_id)
    return Folder(root, tuple(by_id[one] for one in ids), tuple(ids), tuple(folder.name for folder in folders))


def _listing(folder):
    """(folders, files) directly in `folder`, sorted by name, hidden ones left out."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    return [entry for entry in entries if entry.is_dir()], [entry for entry in entries if not entry.is_dir()]
