"""Which images of a set cannot be used: every one is decoded once, by as many threads as there are cores.

    {"plates/0007.jpg": "is not an image: it is empty", ...}        id -> what is wrong

`from_folder` and `from_tfds` leave such images out when told so. An image left out is as if it had never been there:
the others have the index, and the set the fingerprint, that they would have without it.

Damage that leaves a decodable file is not seen. A PNG has checksums, and a file that is cut off never decodes; but of
JPEG, GIF and BMP a flipped bit gives another picture, here as in any other program.
"""

import numpy as np

from selabel_tf.data.folder import open_folder
from selabel_tf.data.readers import FileReader, threads

BLOCK = 1024  # images between two words about progress


def inspect_folder(path, on_progress=None) -> dict[str, str]:
    """id -> what is wrong, of the files in a folder. on_progress: called with (images done, of how many)."""
    folder = open_folder(path)
    stamps = np.zeros((len(folder.paths), 2), np.int64)  # nobody asks for them
    reader = FileReader([str(file) for file in folder.paths], stamps, (None, None, 3))
    return _inspect(reader, folder.ids, on_progress)


def inspect_tfds(name, split="train", data_dir=None, on_progress=None) -> dict[str, str]:
    """id -> what is wrong, of the examples of a prepared TFDS set."""
    from selabel_tf.data import tfds_records  # importing TFDS takes time that folders need not pay

    reader, ids, _ = tfds_records.open_prepared(name, split, data_dir)
    return _inspect(reader, ids, on_progress)


def _inspect(reader, ids, on_progress):
    bad, n = {}, reader.num_examples
    if on_progress is not None:
        on_progress(0, n)
    for start in range(0, n, BLOCK):
        rows = range(start, min(start + BLOCK, n))
        problems = threads().map(reader.problem, rows)
        bad.update({ids[row]: problem for row, problem in zip(rows, problems, strict=True) if problem})
        if on_progress is not None:
            on_progress(rows.stop, n)
    return bad
