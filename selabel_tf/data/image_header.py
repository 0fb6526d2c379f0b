"""The size of an image from the first bytes of its file, without decoding a pixel.

Opening a folder reads only headers: enough to refuse a file that is no image before training starts, and to
know whether all images have one size. Reading a header costs some 50 microseconds, decoding a photograph
some milliseconds.
"""

import struct

FORMATS = "JPEG, PNG, GIF, BMP, WebP"


def read_size(path) -> tuple[int, int]:
    """(height, width) of the image file at `path`; ValueError naming the file when it is none."""
    try:
        with open(path, "rb") as file:
            height, width = _size(file)
    except struct.error:  # the file ends inside its header
        height = width = 0
    if height < 1 or width < 1:
        raise ValueError(
            f"{path} is not an image ({FORMATS}) or its header is damaged. Remove it from the folder, or mend it."
        )
    return height, width


def _size(file) -> tuple[int, int]:
    """(height, width) as the header says, (0, 0) for an unknown format."""
    head = file.read(30)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        width, height = struct.unpack_from(">II", head, 16)
    elif head.startswith((b"GIF87a", b"GIF89a")):
        width, height = struct.unpack_from("<HH", head, 6)
    elif head.startswith(b"BM"):
        width, height = struct.unpack_from("<ii", head, 18)
        height = abs(height)  # negative: rows are stored from the top
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        width, height = _webp(head)
    elif head.startswith(b"\xff\xd8\xff"):
        width, height = _jpeg(file)
    else:
        width = height = 0
    return height, width


def _webp(head) -> tuple[int, int]:
    """(width, height) of the three kinds of WebP: extended, lossless, lossy."""
    kind = head[12:16]
    if kind == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", head, 24)
        return 1 + low_w + (high_w << 16), 1 + low_h + (high_h << 16)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def _jpeg(file) -> tuple[int, int]:
    """(width, height) from the start-of-frame segment; the segments before it (EXIF, tables) are skipped."""
    file.seek(2)
    while True:
        marker, kind, length = struct.unpack(">BBH", file.read(4))
        if marker != 0xFF:
            return 0, 0
        if kind == 0xFF:  # a fill byte before the marker: step one byte
            file.seek(-3, 1)
        elif 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # these three are tables, not frames
            _, height, width = struct.unpack(">BHH", file.read(5))
            return width, height
        else:
            file.seek(length - 2, 1)
