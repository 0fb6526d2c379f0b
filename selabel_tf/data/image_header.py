"""What the first bytes of an image file say, without decoding a pixel.

Opening a folder reads only headers: enough to refuse a file that is no image before training starts, and to
know whether all images have one size. Reading a header costs some 50 microseconds, decoding a photograph
some milliseconds.

Some images TensorFlow would decode wrongly, or not at all, though their kind is a known one: `oddity` tells them by
their header.
"""

import os
import struct
import zlib

FORMATS = "JPEG, PNG, GIF, BMP, WebP"
MOST_PIXELS = 178_956_970  # of one image; what Pillow, too, takes for a bomb: half a gigabyte when decoded
END = 1024  # bytes at each end of a file that enter its checksum


class BadImage(ValueError):
    """An image that cannot be used. reason: what is wrong with it, in words that follow its place."""

    def __init__(self, place, reason, remedy):
        super().__init__(f"{place} {reason}. {remedy}")
        self.reason = reason


def read_size(path) -> tuple[int, int]:
    """(height, width) of the image file at `path`; BadImage naming the file when it is none, or far too large."""
    if not os.path.isfile(path):  # a pipe would be waited for, for ever
        raise BadImage(path, "is not a file", "Remove it from the folder.")
    try:
        with open(path, "rb") as file:
            height, width = _size(file)
            empty = os.fstat(file.fileno()).st_size == 0
    except struct.error:  # the file ends inside its header
        height, width, empty = 0, 0, False
    remedy = "Remove it from the folder, or mend it."
    if empty:
        raise BadImage(path, "is not an image: it is empty", remedy)
    if height < 1 or width < 1:
        raise BadImage(path, f"is not an image ({FORMATS}) or its header is damaged", remedy)
    if height * width > MOST_PIXELS:
        raise BadImage(path, f"claims {height} x {width} pixels, more than the {MOST_PIXELS} of a sane image", remedy)
    return height, width


def stamp(path) -> tuple[int, int]:
    """(bytes, checksum of its two ends) of a file: tells files apart that have the same name and size, cheaply."""
    with open(path, "rb", buffering=0) as file:
        length = os.fstat(file.fileno()).st_size
        ends = file.read(END)
        if length > END:
            ends += os.pread(file.fileno(), END, max(END, length - END))
    return length, zlib.crc32(ends)


def oddity(encoded: bytes) -> str:
    """Why TensorFlow cannot decode this image rightly, or "" where it can, as far as the header tells.

    Of a BMP of 8 bits it shows the numbers of the colours in place of the colours, and of a compressed one noise.
    """
    if encoded.startswith(b"BM") and len(encoded) >= 54:
        (header,) = struct.unpack_from("<I", encoded, 14)
        bits, compression = struct.unpack_from("<HI", encoded, 28)
        if bits < 24 and not _is_gray_scale(encoded[14 + header : 14 + header + 1024], bits):
            return f"a BMP of {bits} bits with a palette of colours"
        if compression not in (0, 3):  # 3: as they are, with masks
            return "a compressed BMP"
    elif _webp_flags(encoded) & 0x02:
        return "an animated WebP"
    return ""


def has_alpha(encoded: bytes) -> bool:
    """Whether this is a WebP with transparency: the one format whose alpha TensorFlow does not drop by itself."""
    if _webp_flags(encoded) & 0x10:
        return True
    lossless = encoded[:4] == b"RIFF" and encoded[8:16] == b"WEBPVP8L" and len(encoded) >= 25
    return lossless and bool(encoded[24] >> 4 & 1)


def _webp_flags(encoded):
    """The flags of an extended WebP, 0 of anything else."""
    return encoded[20] if encoded[:4] == b"RIFF" and encoded[8:16] == b"WEBPVP8X" and len(encoded) >= 30 else 0


def _is_gray_scale(palette, bits):
    """Whether number i stands for the gray i, which is how TensorFlow reads it."""
    ramp = bytes(value for gray in range(256) for value in (gray, gray, gray))
    return bits == 8 and len(palette) == 1024 and bytes(v for i, v in enumerate(palette) if i % 4 != 3) == ramp


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
