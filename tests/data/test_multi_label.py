"""Images that show several classes, read from a small set in the format of TFDS voc/2007 (fixture `small_voc`)."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from selabel_tf.data import from_tfds, multi_label
from selabel_tf.data.multi_label import MultiLabels


def expected_of(data_dir, split):
    """{id: (labels, labels_no_difficult)} as TFDS itself reads them."""
    builder = tfds.builder_from_directory(str(data_dir / "voc" / "2007" / "5.0.0"))
    rows = tfds.as_numpy(builder.as_dataset(split=split, read_config=tfds.ReadConfig(add_tfds_id=True)))
    return {row["tfds_id"].decode(): (set(row["labels"]), set(row["labels_no_difficult"])) for row in rows}


@pytest.mark.parametrize("split", ["test", "train+validation"])
def test_labels_are_those_that_tfds_pairs_with_the_images(small_voc, split):
    labels = multi_label.from_tfds("voc/2007", split, small_voc)
    expected = expected_of(small_voc, split)
    assert sorted(labels.ids) == sorted(expected)
    assert labels.class_names == ("aeroplane", "bicycle", "bird", "boat", "bottle")
    for one, present, ignored in zip(labels.ids, labels.present, labels.ignored, strict=True):
        shown, easy = expected[one]
        assert set(np.flatnonzero(present)) == easy
        assert set(np.flatnonzero(ignored)) == shown - easy
    assert labels.ignored.any() and labels.present.sum(axis=1).max() > 1 and labels.present.sum(axis=1).min() == 0


def test_images_and_labels_have_the_same_ids(small_voc):
    source = from_tfds("voc/2007", "train", small_voc)
    labels = multi_label.from_tfds("voc/2007", "train", small_voc)
    assert source.classes is None and source.image_shape == (None, None, 3)
    assert source.ids == labels.ids
    some = source.subset([5, 2])
    np.testing.assert_array_equal(labels.of(some.ids).present, labels.present[[5, 2]])
    np.testing.assert_array_equal(labels.of(some.ids).ignored, labels.ignored[[5, 2]])


def write(data_dir, features, example):
    folder = data_dir / "other" / "1.0.0"
    folder.mkdir(parents=True)
    identity = tfds.core.DatasetIdentity("other", tfds.core.Version("1.0.0"), str(folder), "other")
    info = tfds.core.DatasetInfo(builder=identity, features=tfds.features.FeaturesDict(features))
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=5)
    writer.initialize_splits(["train"])
    writer.add_examples({"train": [example, example]})
    writer.close_all()


IMAGE = tfds.features.Image(shape=(5, 7, 3))
PIXELS = np.zeros((5, 7, 3), np.uint8)
LIST = tfds.features.Sequence(tfds.features.ClassLabel(names=["ant", "bee"]))


def test_a_set_without_difficult_objects_ignores_nothing(tmp_path):
    write(tmp_path, {"image": IMAGE, "labels": LIST}, {"image": PIXELS, "labels": [1]})
    labels = multi_label.from_tfds("other", "train", tmp_path)
    np.testing.assert_array_equal(labels.present, [[False, True]] * 2)
    assert not labels.ignored.any()


def test_a_set_with_one_class_each_has_no_lists(tmp_path):
    features = {"image": IMAGE, "label": tfds.features.ClassLabel(names=["ant", "bee"])}
    write(tmp_path, features, {"image": PIXELS, "label": 1})
    assert multi_label.from_tfds("other", "train", tmp_path) is None


def test_secret_labels_are_refused(tmp_path):
    write(tmp_path, {"image": IMAGE, "labels": LIST}, {"image": PIXELS, "labels": []})
    with pytest.raises(ValueError, match="No image of other/train has a label"):
        multi_label.from_tfds("other", "train", tmp_path)


def test_mistakes_are_explained():
    present = np.array([[True, False, True]])
    with pytest.raises(ValueError, match=r"ignored must be bool \[1, 3\], .* got int64 \[1, 3\]"):
        MultiLabels(("x",), present, np.zeros((1, 3), np.int64), ("a", "b", "c"))
    with pytest.raises(ValueError, match=r"present must be bool \[2, 3\]"):
        MultiLabels(("x", "y"), present, ~present, ("a", "b", "c"))
    with pytest.raises(ValueError, match="Image 'x' both shows 'c' and ignores it"):
        MultiLabels(("x",), present, np.array([[False, True, True]]), ("a", "b", "c"))
    with pytest.raises(ValueError, match="no labels for 1 images, the first of them 'z'"):
        MultiLabels(("x",), present, ~present, ("a", "b", "c")).of(["z"])
