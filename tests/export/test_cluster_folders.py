import errno
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from selabel_tf.data import from_arrays
from selabel_tf.export import cluster_folders


def put_text(row, path):
    path.write_text(str(row))


def tree(folder):
    return {str(path.relative_to(folder)): path for path in sorted(Path(folder).rglob("*")) if not path.is_dir()}


def test_every_image_lies_in_the_folder_of_its_cluster(tmp_path):
    done = []
    cluster_folders.sort_into(tmp_path / "s", [10, 3, 10], 11, ["a.png", "b.png", "c.png"], put_text, done.append)
    found = tree(tmp_path / "s")
    assert list(found) == ["cluster-03/b.png", "cluster-10/a.png", "cluster-10/c.png"]
    assert found["cluster-10/c.png"].read_text() == "2"
    assert done == [1, 2, 3]
    assert os.listdir(tmp_path) == ["s"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["cats/1.png", "dogs/1.png"], ["cats_1.png", "dogs_1.png"]),
        (["a/b.png", "a_b.png", "a_b-2.png"], ["a_b-2-2.png", "a_b-2.png", "a_b.png"]),
        (["A.png", "a.PNG"], ["A.png", "a-2.PNG"]),  # one name to some file systems
        (["e\u0301.png", "\u00e9.png"], ["e\u0301.png", "\u00e9-2.png"]),  # likewise
        (["../../x.png", "/etc/passwd", "..", ".hidden"], ["_._.._x.png", "__", "_etc_passwd", "_hidden"]),
    ],
)
def test_names_do_not_meet_and_do_not_lead_out(tmp_path, names, expected):
    cluster_folders.sort_into(tmp_path / "s", [0] * len(names), 2, names, put_text)
    assert sorted(tree(tmp_path / "s")) == sorted(f"cluster-0/{name}" for name in expected)


def test_many_equal_names_take_no_quadratic_time(tmp_path):
    names, taken = ["x.png"] * 50_021, {}
    assert len({cluster_folders._free(name, taken) for name in names}) == 50_021


@given(st.text(max_size=300) | st.text(st.sampled_from("./\\\0 a\ud800é"), max_size=20))
def test_any_name_becomes_one_component_of_a_path(name):
    made = cluster_folders.file_name(name)
    assert made not in ("", ".", "..")
    assert not set(made) & set('/\\\0\n:*?"<>|')
    assert not made.startswith(".")
    assert len(made.encode()) <= cluster_folders.LONGEST
    assert len(Path("folder", made).parts) == 2


def test_a_long_name_keeps_its_ending():
    assert cluster_folders.file_name("é" * 300 + ".jpeg").endswith("é.jpeg")


def test_a_folder_that_holds_something_is_never_touched(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"exists and is not an empty folder\. Sort into a new one"):
        cluster_folders.sort_into(tmp_path / "s", [0], 2, ["a"], put_text)
    with pytest.raises(ValueError, match="exists and is not an empty folder"):
        cluster_folders.check_new(tmp_path / "s" / "mine.txt")
    assert list(tree(tmp_path)) == ["s/mine.txt"]


def test_an_empty_folder_and_missing_parents_are_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "new/deeper"):
        cluster_folders.sort_into(tmp_path / folder, [1], 2, ["a"], put_text)
        assert list(tree(tmp_path / folder)) == ["cluster-1/a"]


def test_a_folder_within_the_images_is_refused(tmp_path):
    with pytest.raises(ValueError, match="whose images are to be sorted: they would be found there again"):
        cluster_folders.check_new(tmp_path / "cats" / "sorted", tmp_path)
    cluster_folders.check_new(tmp_path / "sorted", tmp_path / "images")


def test_a_failure_leaves_nothing_behind(tmp_path):
    def fail(row, path):
        put_text(row, path)
        if row == 1:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        cluster_folders.sort_into(tmp_path / "s", [0, 1, 0], 2, ["a", "b", "c"], fail)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("link", ["symlink", "hard", "copy"])
def test_files_are_linked_or_copied(tmp_path, link):
    (tmp_path / "images" / "cats").mkdir(parents=True)
    original = tmp_path / "images" / "cats" / "1.png"
    original.write_bytes(b"picture")
    place = cluster_folders.links(tmp_path / "images", ["cats/1.png"], link)
    cluster_folders.sort_into(tmp_path / "s", [0], 2, ["cats/1.png"], place)
    made = tmp_path / "s" / "cluster-0" / "cats_1.png"
    assert made.read_bytes() == b"picture"
    assert made.is_symlink() == (link == "symlink")
    assert made.samefile(original) == (link != "copy")


def test_a_disk_that_cannot_link_is_told_to_copy(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setitem(cluster_folders.LINKS, "hard", refuse)
    place = cluster_folders.links(tmp_path, ["a.png"], "hard")
    with pytest.raises(ValueError, match=r"A hard link from .* is not possible .*Copy the images instead: --link=copy"):
        cluster_folders.sort_into(tmp_path / "s", [0], 2, ["a.png"], place)


def test_a_missing_image_is_an_error_of_its_own(tmp_path):
    place = cluster_folders.links(tmp_path, ["a.png"], "copy")
    with pytest.raises(FileNotFoundError):
        cluster_folders.sort_into(tmp_path / "s", [0], 2, ["a.png"], place)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_that_are_no_files_are_written_as_they_are_stored(tmp_path, channels, dtype):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 7, 5, channels), dtype=np.uint8)
    images = pixels if dtype == np.uint8 else (pixels / 255).astype(np.float32)
    source = from_arrays(images).augmented("none", size=11, mean=[0.5], std=[0.2])  # none of which is to be seen
    cluster_folders.sort_into(tmp_path / "s", [1, 0], 2, ["0.png", "1.png"], cluster_folders.pictures(source))
    for row, cluster in ((0, 1), (1, 0)):
        written = (tmp_path / "s" / f"cluster-{cluster}" / f"{row}.png").read_bytes()
        np.testing.assert_array_equal(tf.io.decode_png(written).numpy(), pixels[row])
