"""Images as bad luck has them: each is decoded as Pillow decodes it, or found out, and shifts nobody's index."""

import io
import os
import struct
import threading
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from selabel_tf import data
from selabel_tf.data import image_header, tfds_records
from selabel_tf.data.readers import FileReader, RecordReader, index_records

H, W = 11, 13
ROWS, COLUMNS = np.mgrid[:H, :W]
RGB = np.stack([ROWS * 20, COLUMNS * 17, ROWS + COLUMNS * 4], axis=-1).astype(np.uint8)
ALPHA = np.dstack([RGB, (COLUMNS * 19).astype(np.uint8)])
SIXTEEN = (ROWS * 5003 + COLUMNS * 701).astype(np.uint16)
PICTURE = Image.fromarray(RGB)
WIDE = PICTURE.resize((20_000, 3))


def encoded(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def animated(kind, **options):
    return encoded(PICTURE, kind, save_all=True, append_images=[Image.fromarray(255 - RGB)], **options)


def sixteen_bit_png(values):
    """A PNG of uint16 [h, w, 3], which Pillow does not write."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


GOOD = {  # what is decoded, though it is not an ordinary photograph
    "png": encoded(PICTURE, "PNG"),
    "grayscale png": encoded(PICTURE.convert("L"), "PNG"),
    "black and white png": encoded(PICTURE.convert("1"), "PNG"),
    "palette png": encoded(PICTURE.quantize(50), "PNG"),
    "palette png with transparency": encoded(PICTURE.quantize(50), "PNG", transparency=3),
    "alpha png": encoded(Image.fromarray(ALPHA), "PNG"),
    "gray alpha png": encoded(PICTURE.convert("LA"), "PNG"),
    "16-bit colour png": sixteen_bit_png(RGB.astype(np.uint16) * 256 + 255 - RGB),
    "animated png": animated("PNG"),
    "jpeg": encoded(PICTURE, "JPEG", quality=95),
    "progressive jpeg": encoded(PICTURE, "JPEG", quality=95, progressive=True),
    "grayscale jpeg": encoded(PICTURE.convert("L"), "JPEG", quality=95),
    "cmyk jpeg": encoded(PICTURE.convert("CMYK"), "JPEG", quality=95),
    "gif": encoded(PICTURE.quantize(50), "GIF"),
    "animated gif": animated("GIF"),
    "bmp": encoded(PICTURE, "BMP"),
    "grayscale bmp": encoded(PICTURE.convert("L"), "BMP"),
    "alpha bmp": encoded(Image.fromarray(ALPHA), "BMP"),
    "webp": encoded(PICTURE, "WEBP", quality=95),
    "lossless webp": encoded(PICTURE, "WEBP", lossless=True),
    "alpha webp": encoded(Image.fromarray(ALPHA), "WEBP", lossless=True, exact=True),
    "lossy alpha webp": encoded(Image.fromarray(ALPHA), "WEBP", quality=95, exact=True),
    "jpeg with something behind it": encoded(PICTURE, "JPEG", quality=95) + b"something",
    **{f"1x1 {kind}": encoded(PICTURE.crop((3, 3, 4, 4)), kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP")},
    **{f"20,000 wide {kind}": encoded(WIDE, kind) for kind in ("PNG", "JPEG", "GIF", "BMP")},
    "20,000 high png": encoded(PICTURE.resize((3, 20_000)), "PNG"),
}
HUGE = bytearray(GOOD["png"])
HUGE[16:24] = struct.pack(">II", 30_000, 30_000)
BAD = {  # name -> (content, what is said of it)
    "empty.png": (b"", "is not an image: it is empty"),
    "one byte.jpg": (b"\xff", "is not an image (JPEG, PNG, GIF, BMP, WebP) or its header is damaged"),
    "note.jpg": (b"a note about images\n" * 50, "is not an image (JPEG"),
    "zeros.png": (bytes(4099), "is not an image (JPEG"),
    "page.html.png": (b"<html><body>404 Not Found</body></html>", "is not an image (JPEG"),
    "photo.tiff": (encoded(PICTURE, "TIFF"), "is not an image (JPEG"),
    "icon.ico": (encoded(PICTURE, "ICO"), "is not an image (JPEG"),
    "photo.ppm": (encoded(PICTURE, "PPM"), "is not an image (JPEG"),
    "palette.bmp": (encoded(PICTURE.quantize(50), "BMP"), "a BMP of 8 bits with a palette of colours"),
    "bits.bmp": (encoded(PICTURE.convert("1"), "BMP"), "a BMP of 1 bits with a palette of colours"),
    "animated.webp": (animated("WEBP"), "an animated WebP"),
    "bomb.png": (bytes(HUGE), "claims 30000 x 30000 pixels, more than the 178956970 of a sane image"),
    **{
        f"half.{kind.lower()}": (encoded(PICTURE, kind)[: len(encoded(PICTURE, kind)) // 2], "cannot be decoded")
        for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP")
    },
    "flipped.png": (GOOD["png"][:60] + bytes([GOOD["png"][60] ^ 4]) + GOOD["png"][61:], "cannot be decoded"),
    "only a header.jpg": (GOOD["jpeg"][:300], "cannot be decoded"),
}


def fill(folder, contents):
    for number, (name, content) in enumerate(contents.items()):
        (folder / f"{number:03d} {name.replace(' ', '_')}").write_bytes(content)
    return folder


def read(path):
    (image,) = FileReader([str(path)], np.zeros((1, 2)), (None, None, 3)).fetch([0])
    return image


@pytest.mark.parametrize("name", GOOD)
def test_an_image_of_any_kind_is_decoded_as_pillow_decodes_it(tmp_path, name):
    path = tmp_path / "no ending"  # the content decides, not the name
    path.write_bytes(GOOD[name])
    expected = np.asarray(Image.open(path).convert("RGB"), int)
    found = read(path)
    assert found.dtype == np.uint8 and found.shape == expected.shape
    # TensorFlow's inverse cosine transform is the fast one: of these steep slopes it is off by up to 6 of 255
    np.testing.assert_allclose(found, expected, atol=8 if "jpeg" in name.lower() else 0)


def test_of_sixteen_bits_the_upper_eight_are_shown(tmp_path):
    """Pillow keeps a gray image of 16 bits as it is, and cuts it off at 255 when it is made RGB."""
    Image.fromarray(SIXTEEN).save(tmp_path / "a.png")
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), SIXTEEN)
    np.testing.assert_array_equal(read(tmp_path / "a.png"), np.repeat(SIXTEEN[..., None] >> 8, 3, axis=-1))


def test_transparent_pixels_of_a_gif_are_black(tmp_path):
    picture = PICTURE.quantize(50)
    picture.save(tmp_path / "a.gif", transparency=7)
    written = Image.open(tmp_path / "a.gif")
    shown = np.asarray(written.convert("RGBA"))
    transparent = shown[..., 3] == 0
    assert transparent.any()
    np.testing.assert_array_equal(read(tmp_path / "a.gif"), np.where(transparent[..., None], 0, shown[..., :3]))


def test_of_a_folder_of_every_kind_exactly_the_bad_ones_are_found_with_their_reasons(tmp_path):
    fill(tmp_path, GOOD | {name: content for name, (content, _) in BAD.items()})
    progress = []
    found = data.inspect_folder(tmp_path, lambda *done: progress.append(done))
    expected = {
        f"{number:03d} {name.replace(' ', '_')}": BAD[name][1] for number, name in enumerate(GOOD | BAD) if name in BAD
    }
    assert set(found) == set(expected)
    for name, reason in found.items():
        assert expected[name] in reason and str(tmp_path) not in reason
    assert progress == [(0, len(GOOD) + len(BAD)), (len(GOOD) + len(BAD),) * 2]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_images_are_decoded_by_several_threads_at_once(tmp_path, monkeypatch):
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(GOOD["png"])
    both, image = threading.Barrier(2), FileReader.image

    def together(reader, i):
        both.wait(timeout=20)  # one thread alone would wait in vain
        return image(reader, i)

    monkeypatch.setattr(FileReader, "image", together)
    assert data.inspect_folder(tmp_path) == {}


def test_wherever_a_file_is_cut_off_it_is_found_out(tmp_path):
    """Behind the last byte of the picture a GIF may end early: what is seen is whole, for Pillow as well."""
    contents = {}
    for name in ("png", "jpeg", "progressive jpeg", "bmp", "webp", "lossless webp"):
        content = GOOD[name]
        contents |= {f"{name} {cut}": content[:cut] for cut in range(0, len(content), 1 + len(content) // 29)}
    fill(tmp_path, contents)
    assert len(data.inspect_folder(tmp_path)) == len(contents) > 100


def test_what_is_no_file_or_may_not_be_read_is_found_out(tmp_path):
    (tmp_path / "good.png").write_bytes(GOOD["png"])
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    os.mkfifo(tmp_path / "pipe.png")  # to open it would wait for ever
    assert data.inspect_folder(tmp_path) == {"gone.png": "is not a file", "pipe.png": "is not a file"}


def test_an_image_that_cannot_be_read_is_found_out(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(GOOD["png"])

    def refuse(reader, i):
        raise PermissionError(13, "Permission denied", reader.paths[i])

    monkeypatch.setattr(FileReader, "encoded", refuse)  # whoever runs this may be allowed to read everything
    assert data.inspect_folder(tmp_path) == {"a.png": "cannot be read: Permission denied"}


@pytest.mark.parametrize("where", ["flat", "classes"])
def test_bad_images_left_out_are_as_if_they_had_never_been_there(tmp_path, where):
    """Index, id, class, pixels, size, fingerprint, the order of an epoch and its random numbers: nothing shifts."""
    for folder, bad in (("clean", {}), ("spoilt", BAD)):
        for kind in ("cat", "dog") if where == "classes" else (".",):
            inside = tmp_path / folder / kind
            inside.mkdir(parents=True)
            for i in range(7):
                Image.fromarray(RGB + 5 * i).save(inside / f"m{i}.png")
            for name, (content, _) in bad.items():
                for first in "azm":  # before, behind and between the good ones
                    (inside / f"{first}3-{name}").write_bytes(content)
            if bad:
                PICTURE.resize((5, 5)).save(inside / "m3-other size.jpg")
                os.truncate(inside / "m3-other size.jpg", 600)  # its header, which is whole, has another size
    clean = data.from_folder(tmp_path / "clean")
    found = data.inspect_folder(tmp_path / "spoilt")
    assert len(found) == (3 * len(BAD) + 1) * (2 if where == "classes" else 1)
    with pytest.raises(ValueError, match=r"is not an image|claims"):
        data.from_folder(tmp_path / "spoilt")
    spoilt = data.from_folder(tmp_path / "spoilt", without=found)
    assert spoilt.ids == clean.ids and spoilt.image_shape == clean.image_shape == (H, W, 3)
    assert spoilt.fingerprint == clean.fingerprint and spoilt.class_names == clean.class_names
    np.testing.assert_array_equal(spoilt.classes, clean.classes)
    for ours, theirs in zip(spoilt.train_batches(3), clean.train_batches(3), strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])


def test_extreme_sizes_go_through_crops_and_resizing_as_pillow_does_them(tmp_path):
    """20,000 pixels wide, 20,000 high, and one pixel: no step of the way makes them larger than they are."""
    for name, size in (("wide", (20_000, 3)), ("high", (3, 20_000)), ("one", (1, 1))):
        PICTURE.resize(size).save(tmp_path / f"{name}.png")
    source = data.from_folder(tmp_path).augmented("crop_flip", size=8)
    ((images, index),) = source.plain_batches(3)
    for image, i in zip(images.numpy(), index.numpy(), strict=True):
        picture = Image.open(tmp_path / source.ids[i])
        side = min(picture.size) * 224 / 256
        left, top = ((length - side) / 2 for length in picture.size)
        expected = picture.resize((8, 8), Image.BILINEAR, box=(left, top, left + side, top + side))
        np.testing.assert_allclose(image * 255, np.asarray(expected), atol=1)
    for images, _ in source.train_batches(3):
        assert images.shape == (3, 8, 8, 3) and np.isfinite(images).all()


def test_a_tfds_set_with_damaged_examples_is_searched_and_opened_without_them(tmp_path, monkeypatch):
    """A set of records as TFDS leaves it; only the reading of its description is replaced."""
    contents = [encoded(Image.fromarray(RGB + i), "PNG") for i in range(5)]
    contents[1], contents[3] = contents[1][:-30], b"no image"
    path = str(tmp_path / "x.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for content in contents:
            image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
            writer.write(tf.train.Example(features=tf.train.Features(feature={"image": image})).SerializeToString())

    def open_prepared(name, split, data_dir):
        offsets, stamps = index_records(path)
        place = np.zeros(5, int), np.arange(5), offsets, stamps
        return RecordReader([path], *place, (H, W, 3), "image", None), [f"x__{i}" for i in range(5)], None

    monkeypatch.setattr(tfds_records, "open_prepared", open_prepared)
    found = data.inspect_tfds("x")
    assert set(found) == {"x__1", "x__3"} and all("cannot be decoded as an image" in why for why in found.values())
    with pytest.raises(image_header.BadImage, match=r"Record 1 of .*x\.tfrecord cannot be decoded"):
        data.from_tfds("x")
    for in_memory in (True, False):
        source = data.from_tfds("x", in_memory=in_memory, without=found)
        assert source.ids == ("x__0", "x__2", "x__4") and source.in_memory == in_memory
        np.testing.assert_array_equal(source.stored_images([0, 1, 2]), [RGB, RGB + 2, RGB + 4])
