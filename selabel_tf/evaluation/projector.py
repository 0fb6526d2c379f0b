"""Files for TensorBoard's projector: features in space, each shown as its image and named by class and cluster.

    tensors.tsv             features, a row per image
    metadata.tsv            index, name, class, and the cluster of every head
    sprite.png              the images, in rows of equal length
    projector_config.pbtxt  which tells TensorBoard of the three

The files are plain text and a picture: TensorBoard is needed to look at them, not to write them.
"""

from pathlib import Path

import numpy as np

from ..atomic_file import write_atomically
from . import figures

MOST = 8192 // 48  # images across and down: TensorBoard takes sprites of 8192 x 8192 pixels at most


def write(folder, contents) -> Path:
    """Writes the files of one RunContents, of the images that it shows; the folder."""
    images, features = contents.training, contents.features
    if features is None or images.tiles is None:
        raise ValueError(
            f"{contents.name} has no features to project: its training images cannot be read. Put them back, then try "
            "again, or leave out --projector."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    across = min(MOST, int(np.ceil(np.sqrt(len(features)))))
    count = min(len(features), across * across)
    rows, tiles = images.shown[:count], images.tiles[:count]
    text = ["\t".join(f"{value:.6g}" for value in row) for row in features[:count].tolist()]
    write_atomically(folder / "tensors.tsv", "\n".join(text) + "\n")
    write_atomically(folder / "metadata.tsv", _metadata(contents, rows))
    write_atomically(folder / "sprite.png", figures.png(_sprite(tiles, across)))
    side = tiles.shape[1]
    write_atomically(
        folder / "projector_config.pbtxt",
        "embeddings {\n"
        '  tensor_name: "features"\n'
        '  tensor_path: "tensors.tsv"\n'
        '  metadata_path: "metadata.tsv"\n'
        f'  sprite {{ image_path: "sprite.png" single_image_dim: {side} single_image_dim: {side} }}\n'
        "}\n",
    )
    return folder


def _metadata(contents, rows):
    images = contents.training
    heads = images.labels.shape[1]
    lines = [["index", "name", "class", *(f"head {head}" for head in range(heads))]]
    for row in rows:
        number = None if images.classes is None else int(images.classes[row])
        named = contents.class_names is not None and number is not None and number >= 0
        klass = contents.class_names[number] if named else "" if number is None else str(number)
        lines.append([str(row), images.ids[row], klass, *map(str, images.labels[row])])
    return "\n".join("\t".join(_one_cell(cell) for cell in line) for line in lines) + "\n"


def _one_cell(text):
    return "".join(" " if letter in "\t\r\n" else letter for letter in text)


def _sprite(tiles, across):
    """[n, s, s, c] in rows of `across`, filled up with black to a square: [H, W, c]."""
    count, side, _, channels = tiles.shape
    full = np.zeros((across * across, side, side, channels), np.uint8)
    full[:count] = tiles
    return (
        full.reshape(across, across, side, side, channels)
        .swapaxes(1, 2)
        .reshape(across * side, across * side, channels)
    )
