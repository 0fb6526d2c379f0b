"""A prepared TensorFlow Datasets set as random-access records.

TFDS itself reads several shards interleaved, so examples arrive in no order worth keeping. Here the shards
are walked one after another: the order is (shard, position in the shard), and ids are the ones TFDS gives,
such as `cifar10-train.tfrecord-00000-of-00010__17`. Only files are looked at: neither the code that generates
a set nor the network is touched.
"""

import os
import pathlib

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core import read_only_builder

from selabel_tf.data.readers import RecordReader, index_records


def open_prepared(name, split, data_dir) -> tuple[RecordReader, list[str], list[str] | None]:
    """(reader, ids, class_names) of the prepared set `name` in `data_dir` (None: TFDS's default folder)."""
    info = _prepared_info(name, data_dir)
    if info.file_format.value != "tfrecord":
        raise ValueError(
            f"{name!r} is stored as {info.file_format.value}. Prepare it again with file_format='tfrecord'."
        )
    image_key, image = _feature(info.features, "image", tfds.features.Image)
    class_key, label = _feature(info.features, "label", tfds.features.ClassLabel)
    if image is None or np.dtype(image.np_dtype) != np.uint8 or image.shape[2] not in (1, 3):
        raise ValueError(
            f"{name!r} has no 8-bit image feature of 1 or 3 channels that is named 'image' or the only one. "
            f"Its features: {', '.join(f'{key}: {value}' for key, value in info.features.items())}."
        )
    shards = info.splits[split].file_instructions  # TFDS names the known splits when this one is unknown
    if not shards:
        raise ValueError(f"The split {split!r} of {name!r} is empty. Splits: {', '.join(info.splits)}.")
    files, columns, ids = [], [], []
    for number, shard in enumerate(shards):
        offsets, stamps = index_records(shard.filename)
        if len(offsets) != shard.examples_in_shard:
            raise ValueError(
                f"{shard.filename} holds {len(offsets)} records, but the set's description says "
                f"{shard.examples_in_shard}: the copy is incomplete. Fetch the file again."
            )
        positions = np.arange(len(offsets))[shard.skip :][: shard.take]
        files.append(shard.filename)
        columns.append([np.full(len(positions), number), positions, offsets[positions], *stamps[positions].T])
        ids += [f"{os.path.basename(shard.filename)}__{position}" for position in positions]
    file_of, positions, offsets, *stamps = np.concatenate(columns, axis=1)
    stamps = np.stack(stamps, axis=1)
    reader = RecordReader(files, file_of, positions, offsets, stamps, image.shape, image_key, class_key)
    return reader, ids, None if label is None else list(label.names)


def class_lists(name, data_dir) -> dict[str, list[str]]:
    """key -> names of the classes, of every feature of the prepared set `name` that is a list of classes."""
    lists = {key: getattr(value, "feature", None) for key, value in _prepared_info(name, data_dir).features.items()}
    return {key: list(one.names) for key, one in lists.items() if isinstance(one, tfds.features.ClassLabel)}


def _prepared_info(name, data_dir):
    """The description of a prepared set, or an error with the command that prepares it."""
    arguments = {} if data_dir is None else {"data_dir": os.fspath(data_dir)}
    try:
        return read_only_builder.builder_from_files(name, **arguments).info
    except tfds.core.DatasetNotFoundError as error:
        folder = pathlib.Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
        there = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
        place = "" if data_dir is None else f", data_dir={os.fspath(data_dir)!r}"
        raise FileNotFoundError(
            f"No prepared TFDS dataset {name!r} in {folder} (there: {', '.join(there) or 'nothing'}). "
            "It is never downloaded unasked. To download and prepare it, run\n"
            "    pip install importlib_resources\n"
            f'    python -c "import tensorflow_datasets as tfds; tfds.load({name!r}{place})"'
        ) from error


def _feature(features, key, kind):
    """(key, feature) of this kind: the one named `key`, else the only one, else (None, None)."""
    found = {name: feature for name, feature in features.items() if isinstance(feature, kind)}
    if key not in found:
        key = next(iter(found)) if len(found) == 1 else None
    return key, found.get(key)
