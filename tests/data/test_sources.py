"""Sources: what they announce, how they are cut and fingerprinted, and every input they refuse."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import selabel_tf.data as data

N, H, W = 13, 5, 7
PIXELS = np.random.default_rng(4).integers(0, 256, (N, H, W, 3), np.uint8)
FLOATS = PIXELS / 255.0
CLASSES = np.array([2, 0, 1, 0, 2, 2, 0, 1, 0, 1, 2, 0, 0])

FINGERPRINT = "e8704988e566474f4f25efb91a07af022b117811f1f76a6c4ad204bd9dfffff6"


def plain(source):
    return np.concatenate([images for images, _ in source.plain_batches(5)])


def save(path, pixels):
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def flat(tmp_path):
    for i in range(4):
        save(tmp_path / f"{i}.png", PIXELS[i])
    return tmp_path


def test_a_source_of_arrays_says_what_it_holds():
    source = data.from_arrays(PIXELS, CLASSES, class_names=["x", "y", "z"], name="mine")
    assert (source.name, source.num_examples, source.image_shape) == ("mine", N, (H, W, 3))
    assert source.classes.dtype == np.int64 and source.classes.tolist() == CLASSES.tolist()
    assert source.class_names == ["x", "y", "z"]
    assert source.ids == tuple(str(i) for i in range(N))
    assert (source.policy, source.next_epoch) == ("none", 0)


def test_classes_are_optional_and_ids_may_be_given():
    ids = [f"photo-{i}" for i in range(N)]
    source = data.from_arrays(FLOATS, ids=ids)
    assert source.classes is None and source.class_names is None
    assert source.ids[11] == "photo-11"


@pytest.mark.parametrize("images", [FLOATS, FLOATS.astype(np.float32), PIXELS], ids=["float64", "float32", "uint8"])
def test_float_and_uint8_images_give_the_same_batches(images):
    np.testing.assert_allclose(plain(data.from_arrays(images)), FLOATS, atol=1e-6)


def test_images_without_a_channel_axis_get_one():
    source = data.from_arrays(PIXELS[..., 0])
    assert source.image_shape == (H, W, 1)
    np.testing.assert_allclose(plain(source), FLOATS[..., :1], atol=1e-6)


@pytest.mark.parametrize("shape", [(H, W), (0, H, W, 3), (N, 0, W, 3), (N, H, W, 2), (N, H, W, 3, 1)])
def test_images_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"images must have shape \[N, h, w\].*got \["):
        data.from_arrays(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.uint16])
def test_images_of_a_wrong_type_are_refused(dtype):
    with pytest.raises(TypeError, match=r"must be uint8, or float in \[0, 1\], got .*Convert"):
        data.from_arrays(PIXELS.astype(dtype))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_with_their_row(value):
    images = FLOATS.copy()
    images[7, 2, 3, 1] = value
    with pytest.raises(ValueError, match=r"NaN or infinity, first in row 7\. Mend or remove"):
        data.from_arrays(images)


@pytest.mark.parametrize("images", [FLOATS * 255, FLOATS - 0.5])
def test_floats_outside_zero_to_one_are_refused(images):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got .*Divide by 255"):
        data.from_arrays(images)


@pytest.mark.parametrize("ids", [["a"] * (N - 1), list(range(N)), []])
def test_ids_that_are_not_one_string_per_image_are_refused(ids):
    with pytest.raises(ValueError, match=rf"ids must be {N} strings, one per image, got {len(ids)} of "):
        data.from_arrays(PIXELS, ids=ids)


def test_an_id_that_occurs_twice_is_refused():
    with pytest.raises(ValueError, match="The id 'b' occurs more than once"):
        data.from_arrays(PIXELS[:3], ids=["b", "a", "b"])


@pytest.mark.parametrize("classes", [CLASSES[:-1], CLASSES[:, None], CLASSES * 1.0])
def test_classes_that_are_not_one_whole_number_per_image_are_refused(classes):
    with pytest.raises(ValueError, match=f"classes must be {N} whole numbers"):
        data.from_arrays(PIXELS, classes)


def test_classes_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"classes must be at least 0, got -1\.\.1"):
        data.from_arrays(PIXELS, CLASSES - 1)
    with pytest.raises(ValueError, match=r"at least 0 and below 2, the number of class_names, got 0\.\.2"):
        data.from_arrays(PIXELS, CLASSES, class_names=["x", "y"])


def test_class_names_without_classes_are_refused():
    with pytest.raises(ValueError, match="class_names were given without classes"):
        data.from_arrays(PIXELS, class_names=["x"])


def test_a_subset_counts_anew_and_keeps_ids_classes_pixels_and_policy():
    rows = [9, 2, 11]
    source = data.from_arrays(PIXELS, CLASSES).augmented("flip", mean=0.5, std=0.5).subset(rows)
    assert (source.num_examples, source.ids, source.policy) == (3, ("9", "2", "11"), "flip")
    assert source.classes.tolist() == CLASSES[rows].tolist()
    np.testing.assert_allclose(plain(source), FLOATS[rows] * 2 - 1, atol=1e-5)
    assert np.concatenate([index for _, index in source.plain_batches(2)]).tolist() == [0, 1, 2]


def test_a_subset_of_a_source_without_classes_has_none():
    assert data.from_arrays(PIXELS).subset([1]).classes is None


@pytest.mark.parametrize("rows", [[], [[1, 2]], [0.5], np.ones(N, bool)])
def test_rows_that_are_no_list_of_numbers_are_refused(rows):
    with pytest.raises(ValueError, match=r"rows must be a non-empty list of row numbers.*np\.flatnonzero"):
        data.from_arrays(PIXELS).subset(rows)


@pytest.mark.parametrize("rows", [[-1, 2], [0, N]])
def test_rows_out_of_range_are_refused(rows):
    with pytest.raises(ValueError, match=rf"rows must lie in 0\.\.{N - 1}"):
        data.from_arrays(PIXELS).subset(rows)


def test_a_row_taken_twice_is_refused():
    with pytest.raises(ValueError, match="The id '3' occurs more than once"):
        data.from_arrays(PIXELS).subset([3, 3])


def test_first_per_class_takes_the_first_of_each_class_in_index_order():
    source = data.from_arrays(PIXELS, CLASSES).first_per_class(2)
    assert source.ids == ("0", "1", "2", "3", "4", "7")
    assert np.bincount(source.classes).tolist() == [2, 2, 2]


def test_first_per_class_is_refused_without_classes_or_with_too_few():
    with pytest.raises(ValueError, match="arrays has no classes to take 2 examples of each"):
        data.from_arrays(PIXELS).first_per_class(2)
    with pytest.raises(ValueError, match=r"class y of arrays has only 3 examples. Use at most 3"):
        data.from_arrays(PIXELS, CLASSES, class_names=["x", "y", "z"]).first_per_class(4)
    with pytest.raises(ValueError, match="class 1 of arrays has only 3"):
        data.from_arrays(PIXELS, CLASSES).first_per_class(4)
    with pytest.raises(ValueError, match="n must be at least 1"):
        data.from_arrays(PIXELS, CLASSES).first_per_class(0)


def test_another_augmentation_replaces_the_former_and_leaves_its_source_alone():
    source = data.from_arrays(PIXELS, CLASSES)
    source.next_epoch = 5
    small = source.augmented("random_resized_crop", 3)
    same_size = small.augmented("flip")
    assert (source.policy, small.policy, same_size.policy) == ("none", "random_resized_crop", "flip")
    assert (source.image_shape, small.image_shape, same_size.image_shape) == ((H, W, 3), (3, 3, 3), (H, W, 3))
    assert (source.next_epoch, small.next_epoch) == (5, 0)
    assert small.classes.tolist() == CLASSES.tolist()


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="Unknown augmentation policy 'flop'"):
        data.from_arrays(PIXELS).augmented("flop")


def test_a_fingerprint_depends_on_content_ids_and_rows_but_not_on_augmentation_or_classes():
    source = data.from_arrays(PIXELS)
    other = PIXELS.copy()
    other[3, 1, 2, 0] ^= 1
    different = [
        source,
        data.from_arrays(other),
        data.from_arrays(PIXELS, ids=[f"id{i}" for i in range(N)]),
        source.subset(range(N - 1)),
        source.subset(range(N)[::-1]),
    ]
    assert len({one.fingerprint for one in different}) == len(different)
    same = [data.from_arrays(PIXELS.copy(), CLASSES), source.augmented("flip", 3), source.subset(range(N))]
    assert {one.fingerprint for one in same} == {source.fingerprint}


def test_a_fingerprint_is_the_same_on_every_machine():
    """Written down once."""
    images = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)
    assert data.from_arrays(images).fingerprint == FINGERPRINT


def test_a_flat_folder_is_sorted_by_name_and_has_no_classes(flat):
    (flat / ".hidden").write_text("passed over")
    source = data.from_folder(flat)
    assert (source.name, source.num_examples, source.image_shape) == (flat.name, 4, (H, W, 3))
    assert source.ids == ("0.png", "1.png", "2.png", "3.png")
    assert source.classes is None and source.class_names is None
    np.testing.assert_allclose(plain(source), FLOATS[:4], atol=1e-6)


def test_class_folders_become_classes_in_sorted_order(tmp_path):
    for i, place in enumerate(["dog/a.png", "cat/z.png", "dog/B.png", "cat/b.png"]):
        save(tmp_path / place, PIXELS[i])
    source = data.from_folder(tmp_path)
    assert source.ids == ("cat/b.png", "cat/z.png", "dog/B.png", "dog/a.png")
    assert source.class_names == ["cat", "dog"]
    assert source.classes.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(plain(source), FLOATS[[3, 1, 2, 0]], atol=1e-6)


def test_the_fingerprint_of_a_folder_follows_names_and_file_sizes(flat, tmp_path):
    before = data.from_folder(flat).fingerprint
    assert data.from_folder(str(flat)).fingerprint == before
    save(flat / "3.png", np.zeros((H, W, 3), np.uint8))
    resaved = data.from_folder(flat).fingerprint
    (flat / "3.png").rename(flat / "4.png")
    assert len({before, resaved, data.from_folder(flat).fingerprint}) == 3


def test_the_fingerprint_of_a_folder_follows_the_ends_of_files_of_one_size(tmp_path):
    """A BMP is header and pixels, and may have anything behind them: a flipped bit leaves it an image of its length."""
    path = tmp_path / "a.bmp"
    save(path, PIXELS[0])
    whole = path.read_bytes() + bytes(5003)
    found = set()
    for content in (whole, whole[:-1] + b"x", whole[:200] + b"x" + whole[201:], whole[:2000] + b"x" + whole[2001:]):
        path.write_bytes(content)
        found.add(data.from_folder(tmp_path).fingerprint)
    assert len(found) == 3  # the middle of a file is not looked at
    small = whole[:1500]  # of which everything is looked at
    for content in (small, *(small[:place] + b"x" + small[place + 1 :] for place in (700, 1023, 1024, 1499))):
        path.write_bytes(content)
        found.add(data.from_folder(tmp_path).fingerprint)
    assert len(found) == 8


@pytest.mark.parametrize(("image_size", "shape"), [(3, (3, 3, 3)), ((4, 9), (4, 9, 3))])
def test_image_size_gives_every_image_of_a_folder_one_size(flat, image_size, shape):
    save(flat / "odd.png", PIXELS[5, :2])
    source = data.from_folder(flat, image_size=image_size)
    assert source.image_shape == shape
    assert plain(source).shape == (5, *shape)


@pytest.mark.parametrize(
    ("image_size", "error", "message"),
    [
        (0, ValueError, "image_size must be at least 1"),
        ((3, 4, 3), ValueError, r"image_size must be one number or \(height, width\)"),
        ("3", TypeError, "image_size must be a whole number"),
    ],
)
def test_a_wrong_image_size_is_refused(flat, image_size, error, message):
    with pytest.raises(error, match=message):
        data.from_folder(flat, image_size=image_size)


def test_images_of_differing_sizes_need_a_size_before_they_can_share_a_batch(flat):
    save(flat / "odd.png", PIXELS[5, :2])
    source = data.from_folder(flat)
    assert (source.image_shape, source.policy) == ((None, None, 3), "none")
    for make in (
        source.train_batches,
        source.plain_batches,
        lambda size: source.view_batches(size, position=0),
    ):
        with pytest.raises(ValueError, match=r"differ in size .*augmented\(policy, size=224\).*image_size=224"):
            make(2)
    with pytest.raises(ValueError, match="give size"):
        source.augmented("flip")
    assert source.augmented("flip", 4).image_shape == (4, 4, 3)
    assert source.subset([1, 4]).image_shape == (None, None, 3)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        data.from_folder(tmp_path / "nowhere")


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no images. Expected files"):
        data.from_folder(tmp_path)


def test_an_empty_class_folder_is_refused(tmp_path):
    save(tmp_path / "cat" / "a.png", PIXELS[0])
    (tmp_path / "dog").mkdir()
    with pytest.raises(ValueError, match=r"The class folder .*dog is empty"):
        data.from_folder(tmp_path)


def test_folders_inside_class_folders_are_refused(tmp_path):
    save(tmp_path / "cat" / "a.png", PIXELS[0])
    (tmp_path / "cat" / "kittens").mkdir()
    with pytest.raises(ValueError, match=r"The class folder .*cat holds the folder kittens"):
        data.from_folder(tmp_path)


def test_loose_images_beside_class_folders_are_refused(flat):
    save(flat / "cat" / "a.png", PIXELS[0])
    with pytest.raises(ValueError, match=r"both loose files \(0\.png, \.\.\.\) and sub-folders \(cat, \.\.\.\)"):
        data.from_folder(flat)


def test_a_file_that_is_no_image_is_refused_when_the_folder_is_opened(flat):
    (flat / "notes.txt").write_text("no image")
    with pytest.raises(ValueError, match=r"notes\.txt is not an image"):
        data.from_folder(flat)


def test_digits_are_those_of_scikit_learn_scaled_up():
    source = data.digits()
    assert (source.name, source.num_examples, source.image_shape) == ("digits", 1797, (16, 16, 1))
    bunch = load_digits()
    assert source.classes.tolist() == bunch.target.tolist()
    assert source.class_names == [str(i) for i in range(10)]
    native = np.concatenate([images for images, _ in data.digits(8).plain_batches(600)])
    np.testing.assert_allclose(native[..., 0], bunch.images / 16, atol=1e-6)


def test_digits_of_no_size_are_refused():
    with pytest.raises(ValueError, match="size must be at least 1"):
        data.digits(0)


def test_the_stored_shape_is_that_before_augmentation():
    source = data.from_arrays(np.zeros([5, 7, 11, 3], np.uint8)).augmented("none", 13)
    assert source.stored_shape == (7, 11, 3)
    assert source.image_shape == (13, 13, 3)
