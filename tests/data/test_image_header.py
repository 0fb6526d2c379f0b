"""read_size against PIL, which wrote the files."""

import numpy as np
import pytest
from PIL import Image

from selabel_tf.data.image_header import read_size

HEIGHT, WIDTH = 11, 307  # the width needs more than one byte


def picture(mode="RGB"):
    return Image.fromarray(np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)).convert(mode)


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("a.png", "RGB", {}),
        ("a.png", "L", {}),
        ("a.gif", "P", {}),
        ("a.bmp", "RGB", {}),
        ("a.jpg", "RGB", {}),
        ("a.jpg", "L", {"progressive": True}),
        ("a.jpg", "RGB", {"comment": b"a comment before the frame" * 50}),
        ("a.webp", "RGB", {"lossless": False}),
        ("a.webp", "RGB", {"lossless": True}),
        ("a.webp", "RGB", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"}),  # metadata: the extended kind
    ],
)
def test_height_and_width_of_every_format_are_read_from_the_header(tmp_path, name, mode, options):
    picture(mode).save(tmp_path / name, **options)
    assert read_size(tmp_path / name) == (HEIGHT, WIDTH)


def test_a_bmp_whose_rows_run_from_the_top_has_a_positive_height(tmp_path):
    path = tmp_path / "a.bmp"
    picture().save(path)
    content = bytearray(path.read_bytes())
    content[22:26] = (-HEIGHT).to_bytes(4, "little", signed=True)
    path.write_bytes(content)
    assert read_size(path) == (HEIGHT, WIDTH)


def test_fill_bytes_before_a_jpeg_marker_are_stepped_over(tmp_path):
    path = tmp_path / "a.jpg"
    picture().save(path)
    content = path.read_bytes()
    path.write_bytes(content[:2] + b"\xff\xff\xff" + content[2:])
    assert read_size(path) == (HEIGHT, WIDTH)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"this is a note, not an image",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xe0",
        b"\xff\xd8\xff\xe0\x00\x04abcdefgh",
        b"GIF89a",
        b"BM",
        b"RIFF\0\0\0\0WEBPVP9 " + bytes(20),
    ],
    ids=[
        "empty",
        "text",
        "png cut off",
        "jpeg cut off",
        "jpeg astray",
        "gif cut off",
        "bmp cut off",
        "webp unknown",
    ],
)
def test_a_file_that_is_no_image_is_refused_by_name(tmp_path, content):
    path = tmp_path / "note.png"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"note\.png is not an image.*Remove it"):
        read_size(path)
