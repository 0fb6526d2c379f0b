"""from_tfds on a small set written here, against what TFDS itself reads from it."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

import selabel_tf.data as data

N, H, W = 23, 5, 7
IMAGES = np.random.default_rng(2).integers(0, 256, (N, H, W, 3), np.uint8)
IMAGES[:11, :2] = 0  # rows compress to different lengths
LABELS = np.arange(N) % 3
ANIMALS = ["ant", "bee", "cat"]
FEATURES = {"image": tfds.features.Image(shape=(H, W, 3)), "label": tfds.features.ClassLabel(names=ANIMALS)}


def write(data_dir, features, examples, per_shard=5, splits=("train",)):
    """A prepared set "animals" 1.0.0; without `importlib_resources`, which TFDS builders would need."""
    folder = data_dir / "animals" / "1.0.0"
    folder.mkdir(parents=True)
    identity = tfds.core.DatasetIdentity("animals", tfds.core.Version("1.0.0"), str(folder), "animals")
    info = tfds.core.DatasetInfo(builder=identity, features=tfds.features.FeaturesDict(features))
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=per_shard)
    writer.initialize_splits(list(splits))
    writer.add_examples({split: examples for split in splits})
    writer.close_all()
    return data_dir


def examples(images=IMAGES, labels=LABELS):
    return [{"image": image, "label": int(label)} for image, label in zip(images, labels, strict=True)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Five shards."""
    return write(tmp_path_factory.mktemp("tfds"), FEATURES, examples())


def pixels(source):
    return np.concatenate([images for images, _ in source.plain_batches(10)])


@pytest.mark.parametrize("in_memory", [None, True, False])
def test_examples_come_in_the_order_of_shard_and_position(prepared, in_memory):
    source = data.from_tfds("animals", "train", prepared, in_memory=in_memory)
    assert (source.name, source.num_examples, source.image_shape) == ("animals/train", N, (H, W, 3))
    np.testing.assert_allclose(pixels(source), IMAGES / 255, atol=1e-6)
    np.testing.assert_array_equal(source.classes, LABELS)
    assert source.class_names == ANIMALS
    assert source.ids[7] == "animals-train.tfrecord-00001__2"


@pytest.mark.parametrize("split", ["train", "train[17%:]", "train[3:14]", "train[:2]+train[20:]"])
def test_ids_and_pixels_are_those_that_tfds_pairs(prepared, split):
    builder = tfds.builder_from_directory(str(prepared / "animals" / "1.0.0"))
    config = tfds.ReadConfig(add_tfds_id=True)
    expected = {
        row["tfds_id"].decode(): row["image"]
        for row in tfds.as_numpy(builder.as_dataset(split=split, read_config=config))
    }
    source = data.from_tfds("animals", split, prepared)
    assert sorted(source.ids) == sorted(expected)
    for one, image in zip(source.ids, pixels(source), strict=True):
        np.testing.assert_allclose(image, expected[one] / 255, atol=1e-6)


def test_the_fingerprint_is_the_same_in_memory_and_on_disk_but_not_for_another_split(prepared):
    held, indexed = (data.from_tfds("animals", "train", prepared, in_memory=held) for held in (True, False))
    assert held.fingerprint == indexed.fingerprint
    assert held.subset([4, 20]).fingerprint == indexed.subset([4, 20]).fingerprint != held.fingerprint
    assert data.from_tfds("animals", "train[1:]", prepared).fingerprint != held.fingerprint


def test_small_sets_are_held_in_memory_and_large_ones_are_not(prepared, monkeypatch):
    size = N * H * W * 3
    for limit, held in ((size, True), (size - 1, False)):
        monkeypatch.setattr(data.sources, "RAM_LIMIT", limit)
        source = data.from_tfds("animals", "train", prepared)
        assert hasattr(source._reader, "images") == held


def test_a_subset_of_records_on_disk_keeps_ids_classes_and_pixels_together(prepared):
    source = data.from_tfds("animals", "train", prepared, in_memory=False).first_per_class(2)
    assert source.ids[3:5] == (
        "animals-train.tfrecord-00000__3",
        "animals-train.tfrecord-00000__4",
    )
    np.testing.assert_array_equal(source.classes, [0, 1, 2, 0, 1, 2])
    np.testing.assert_allclose(pixels(source), IMAGES[:6] / 255, atol=1e-6)


def test_an_absent_set_is_refused_at_once_with_the_command_that_prepares_it(prepared):
    with pytest.raises(FileNotFoundError) as error:
        data.from_tfds("cifar10", data_dir=prepared)
    message = str(error.value)
    assert f"No prepared TFDS dataset 'cifar10' in {prepared} (there: animals)" in message
    assert f"tfds.load('cifar10', data_dir={str(prepared)!r})" in message
    assert "importlib_resources" in message


def test_an_absent_data_folder_is_refused_too(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no_such_folder \(there: nothing\)"):
        data.from_tfds("cifar10", data_dir=tmp_path / "no_such_folder")


def test_without_a_data_folder_the_command_names_none_either():
    """The set's name cannot exist, whatever the machine holds."""
    with pytest.raises(FileNotFoundError, match=r"(?s)'no_such_set' in .*tfds\.load\('no_such_set'\)"):
        data.from_tfds("no_such_set")


def test_an_unknown_split_is_refused_with_the_known_ones(prepared):
    with pytest.raises(ValueError, match=r"Unknown split 'trian'.*train"):
        data.from_tfds("animals", "trian", prepared)


def test_an_empty_split_is_refused(prepared):
    with pytest.raises(ValueError, match=r"The split 'train\[:0\]' of 'animals' is empty\. Splits: train"):
        data.from_tfds("animals", "train[:0]", prepared)


def test_the_same_slice_twice_is_refused_since_ids_repeat(prepared):
    with pytest.raises(ValueError, match=r"The id 'animals-train.*__0' occurs more than once"):
        data.from_tfds("animals", "train[:3]+train[:2]", prepared)


def test_a_set_without_labels_has_no_classes(tmp_path):
    features = {"picture": tfds.features.Image(shape=(H, W, 3))}
    write(tmp_path, features, [{"picture": image} for image in IMAGES[:3]])
    source = data.from_tfds("animals", data_dir=tmp_path)
    assert source.classes is None and source.class_names is None
    np.testing.assert_allclose(pixels(source), IMAGES[:3] / 255, atol=1e-6)


def test_secret_labels_are_no_classes(tmp_path):
    write(tmp_path, FEATURES, examples(IMAGES[:3], [-1, -1, -1]))
    assert data.from_tfds("animals", data_dir=tmp_path).classes is None


def test_one_channel_stays_one_channel(tmp_path):
    features = {"image": tfds.features.Image(shape=(H, W, 1))}
    write(tmp_path, features, [{"image": image[..., :1]} for image in IMAGES[:3]])
    source = data.from_tfds("animals", data_dir=tmp_path)
    assert source.image_shape == (H, W, 1)
    np.testing.assert_allclose(pixels(source), IMAGES[:3, ..., :1] / 255, atol=1e-6)


def test_images_of_differing_sizes_are_read_from_disk_and_need_a_size(tmp_path):
    features = {"image": tfds.features.Image()}
    write(tmp_path, features, [{"image": IMAGES[i, : 3 + i]} for i in range(3)])
    source = data.from_tfds("animals", data_dir=tmp_path)
    assert source.image_shape == (None, None, 3)
    with pytest.raises(ValueError, match="differ in size"):
        source.plain_batches(2)
    assert pixels(source.augmented("none", 4)).shape == (3, 4, 4, 3)
    with pytest.raises(ValueError, match="in_memory=True needs images of one size"):
        data.from_tfds("animals", data_dir=tmp_path, in_memory=True)


@pytest.mark.parametrize(
    ("features", "example"),
    [
        ({"x": tfds.features.Scalar(np.int64)}, {"x": 3}),
        ({"image": tfds.features.Image(shape=(H, W, 4))}, {"image": np.zeros((H, W, 4), np.uint8)}),
        (
            {"image": tfds.features.Image(shape=(H, W, 1), dtype=np.uint16)},
            {"image": np.zeros((H, W, 1), "uint16")},
        ),
        (
            {"a": tfds.features.Image(shape=(H, W, 3)), "b": tfds.features.Image(shape=(H, W, 3))},
            {"a": IMAGES[0], "b": IMAGES[1]},
        ),
    ],
    ids=["no image", "four channels", "16 bits", "two images"],
)
def test_a_set_without_one_ordinary_image_feature_is_refused(tmp_path, features, example):
    write(tmp_path, features, [example])
    with pytest.raises(ValueError, match=r"'animals' has no 8-bit image feature of 1 or 3 channels.*Its features"):
        data.from_tfds("animals", data_dir=tmp_path)


def test_a_shard_with_records_missing_is_refused_by_name(tmp_path):
    write(tmp_path, FEATURES, examples(), per_shard=N)
    shard = tmp_path / "animals" / "1.0.0" / "animals-train.tfrecord-00000"
    first = int.from_bytes(shard.read_bytes()[:8], "little") + 16
    shard.write_bytes(shard.read_bytes()[first:])
    with pytest.raises(ValueError, match=r"tfrecord-00000 holds 22 records, but .* says 23"):
        data.from_tfds("animals", data_dir=tmp_path)


def test_another_file_format_than_tfrecord_is_refused(tmp_path):
    write(tmp_path, FEATURES, examples(IMAGES[:3], LABELS[:3]))
    info = tmp_path / "animals" / "1.0.0" / "dataset_info.json"
    info.write_text(info.read_text().replace('"fileFormat": "tfrecord"', '"fileFormat": "array_record"'))
    with pytest.raises(ValueError, match=r"stored as array_record\. Prepare it again with file_format='tfrecord'"):
        data.from_tfds("animals", data_dir=tmp_path)
