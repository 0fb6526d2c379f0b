"""Readers against PIL (what was written is what is read) and against tf.data's own TFRecord reading."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from selabel_tf.data.image_header import stamp
from selabel_tf.data.readers import ArrayReader, FileReader, RecordReader, index_records

N, H, W = 13, 5, 7
PIXELS = np.random.default_rng(1).integers(0, 256, (N, H, W, 3), np.uint8)
PIXELS[:5, :2] = 0  # rows compress to different lengths


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def example(pixels, label):
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[png(pixels)])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


@pytest.fixture
def files(tmp_path):
    paths = [str(tmp_path / f"{i}.png") for i in range(N)]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels).save(path)
    return FileReader(paths, np.array([stamp(path) for path in paths]), (H, W, 3))


@pytest.fixture
def records(tmp_path):
    """Two shards of 5 and 8 records."""
    shards, columns = [str(tmp_path / "a"), str(tmp_path / "b")], []
    for number, (shard, rows) in enumerate(zip(shards, [range(5), range(5, N)], strict=True)):
        with tf.io.TFRecordWriter(shard) as writer:
            for i in rows:
                writer.write(example(PIXELS[i], i * 3))
        offsets, stamps = index_records(shard)
        columns.append([np.full(len(rows), number), np.arange(len(rows)), offsets, *stamps.T])
    *places, lengths, checksums = np.concatenate(columns, axis=1)
    return RecordReader(shards, *places, np.stack([lengths, checksums], axis=1), (H, W, 3), "image", "label")


@pytest.fixture(params=["array", "files", "records"])
def reader(request):
    return ArrayReader(PIXELS) if request.param == "array" else request.getfixturevalue(request.param)


def test_rows_are_fetched_in_the_order_asked_for(reader):
    index = np.array([11, 0, 7, 7, 3])
    fetched = reader.fetch(index)
    assert fetched.dtype == reader.dtype == np.uint8
    np.testing.assert_array_equal(fetched, PIXELS[index])


def test_taken_rows_make_a_reader_of_their_own(reader):
    taken = reader.take(np.array([12, 2, 5]))
    assert (taken.num_examples, taken.image_shape) == (3, (H, W, 3))
    np.testing.assert_array_equal(taken.fetch(np.array([2, 0])), PIXELS[[5, 12]])


def test_content_depends_on_the_rows_and_not_on_the_object(reader):
    everything = np.arange(N)
    assert reader.take(everything).content() == reader.content()
    assert reader.take(everything[::-1]).content() != reader.content()


def test_the_content_of_an_array_changes_with_one_pixel_and_with_its_type():
    other = PIXELS.copy()
    other[3, 2, 1, 0] ^= 1
    contents = {ArrayReader(images).content() for images in (PIXELS, other, np.zeros_like(PIXELS))}
    zeros = np.zeros((N, H, W, 3), np.float32)
    contents |= {ArrayReader(zeros).content(), ArrayReader(zeros.reshape(N, W, H, 3)).content()}
    assert len(contents) == 5


@pytest.mark.parametrize("kind", ["files", "records"])
def test_decoding_into_memory_keeps_pixels_and_content(kind, request):
    reader = request.getfixturevalue(kind)
    held = reader.in_memory()
    np.testing.assert_array_equal(held.fetch(np.arange(N)), PIXELS)
    assert held.content() == reader.content()
    assert held.take(np.array([4, 1])).content() == reader.take(np.array([4, 1])).content()


def test_classes_of_records_come_in_index_order(records):
    np.testing.assert_array_equal(records.classes(), np.arange(N) * 3)
    np.testing.assert_array_equal(records.take(np.array([9, 0])).classes(), [27, 0])


def test_the_offset_index_finds_the_payloads_that_tensorflow_finds(tmp_path):
    path = tmp_path / "shard"
    payloads = [b"x" * size for size in (0, 1, 257, 70_001)]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for payload in payloads:
            writer.write(payload)
    content = path.read_bytes()
    offsets, stamps = index_records(path)
    found = [content[at : at + size] for at, size in zip(offsets, stamps[:, 0], strict=True)]
    assert found == payloads == list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def test_a_record_file_that_ends_too_soon_is_refused_by_name(records, tmp_path):
    path = tmp_path / "b"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"b ends inside record 7: the copy is incomplete\. Fetch"):
        index_records(path)


@pytest.mark.parametrize("read", [lambda r: r.fetch(np.arange(N)), lambda r: r.in_memory()], ids=["fetch", "memory"])
def test_a_damaged_image_is_named(read, files, records):
    content = png(PIXELS[4])
    with open(files.paths[4], "wb") as file:
        file.write(content[: len(content) // 2])
    with pytest.raises(
        ValueError, match=r"4\.png cannot be decoded as an image .*convert it, replace it, or remove it"
    ):
        read(files)

    shard = records.files[0]
    with open(shard, "rb+") as file:
        file.seek(int(records.offsets[2]))
        record = file.read(int(records.stamps[2, 0]))
        file.seek(int(records.offsets[2]) + record.index(b"IHDR"))
        file.write(b"XXXX")
    with pytest.raises(ValueError, match=r"Record 2 of .*a cannot be decoded as an image"):
        read(records)


@pytest.mark.parametrize("read", [lambda r: r.fetch(np.arange(N)), lambda r: r.in_memory()], ids=["fetch", "memory"])
def test_a_file_that_changed_its_size_since_it_was_opened_is_named(read, files):
    Image.fromarray(PIXELS[6].transpose(1, 0, 2)).save(files.paths[6])
    with pytest.raises(ValueError, match=r"6\.png decodes to shape \(7, 5, 3\), but \(5, 7, 3\) was announced"):
        read(files)


def test_images_of_differing_sizes_come_as_a_list(files):
    Image.fromarray(PIXELS[6, :3, :2]).save(files.paths[6])
    uneven = FileReader(files.paths, files.stamps, (None, None, 3))
    images = uneven.fetch(np.array([6, 1]))
    np.testing.assert_array_equal(images[0], PIXELS[6, :3, :2])
    np.testing.assert_array_equal(images[1], PIXELS[1])


def test_files_are_stretched_to_the_asked_size(tmp_path):
    """Halves of one colour keep it, whatever the size; the seam may blur."""
    path = tmp_path / "a.png"
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[:, 3:] = (200, 100, 50)
    Image.fromarray(pixels).save(path)
    reader = FileReader([str(path)], np.array([[1, 1]]), (4, 6, 3), (10, 22))
    (image,) = reader.fetch(np.array([0]))
    assert reader.image_shape == image.shape == (10, 22, 3)
    assert reader.take(np.array([0])).image_shape == (10, 22, 3)
    np.testing.assert_array_equal(image[:, :8], 0)
    np.testing.assert_array_equal(image[:, 14:], np.broadcast_to([200, 100, 50], (10, 8, 3)))


@pytest.mark.parametrize("suffix", ["png", "bmp", "gif", "webp", "jpg"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_every_format_and_grayscale_decode_to_three_channels_as_pil_sees_them(tmp_path, suffix, mode):
    smooth = np.linspace(30, 220, H * W).reshape(H, W).astype(np.uint8)
    written = Image.fromarray(np.stack([smooth, smooth[::-1], smooth // 2], axis=-1)).convert(mode)
    path = tmp_path / f"a.{suffix}"
    written.save(path, **({"lossless": True} if suffix == "webp" else {}))
    (image,) = FileReader([str(path)], np.array([[1, 1]]), (H, W, 3)).fetch(np.array([0]))
    tolerance = 4 if suffix == "jpg" else 0  # decoders may round differently
    np.testing.assert_allclose(image.astype(int), np.asarray(Image.open(path).convert("RGB"), int), atol=tolerance)


def animation(path):
    frames = [Image.fromarray(np.full((H, W, 3), value, np.uint8)) for value in (40, 90, 160)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    return FileReader([str(path)], np.array([[1, 1]]), (H, W, 3))


def test_an_animated_gif_shows_its_first_frame(tmp_path):
    (image,) = animation(tmp_path / "a.gif").fetch(np.array([0]))
    np.testing.assert_array_equal(image, np.full((H, W, 3), 40))


def test_an_animated_webp_which_tensorflow_does_not_read_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"a\.webp cannot be decoded .*: an animated WebP\. .* convert it"):
        animation(tmp_path / "a.webp").fetch(np.array([0]))


def test_a_record_that_is_no_example_or_has_no_image_is_named(records):
    for content in (b"\xff" * int(records.stamps[1, 0]), b"\x0a\x00"):  # not a message at all; an empty example
        with open(records.files[0], "rb+") as file:
            file.seek(int(records.offsets[1]))
            file.write(content)
        one = records.take(np.array([1]))
        one.stamps[0, 0] = len(content)
        with pytest.raises(
            ValueError, match=r"Record 1 of .*a is no example with an image in 'image'\. .*fetch it again"
        ):
            one.fetch(np.array([0]))


def test_the_content_of_records_changes_with_any_byte_of_one(tmp_path):
    contents = set()
    for middle in (b"a", b"b"):
        with tf.io.TFRecordWriter(str(tmp_path / "x")) as writer:
            writer.write(bytes(5003) + middle + bytes(5003))
        _, stamps = index_records(tmp_path / "x")
        contents.add(tuple(stamps[0]))
    assert len(contents) == 2 and len({length for length, _ in contents}) == 1
