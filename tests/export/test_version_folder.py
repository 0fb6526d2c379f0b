"""Numbered folders that are whole or not there."""

import pytest

from selabel_tf.export.version_folder import publish


def fill(text):
    return lambda folder: (folder / "model.bin").write_text(text)


def test_exports_are_numbered_and_none_is_overwritten(tmp_path):
    parent = tmp_path / "deep" / "model"
    folders = [publish(parent, "model.bin", fill(text)) for text in ("first", "second")]
    assert [folder.name for folder in folders] == ["1", "2"]
    assert [(folder / "model.bin").read_text() for folder in folders] == ["first", "second"]
    assert sorted(path.name for path in parent.iterdir()) == ["1", "2"]


def test_numbers_are_compared_as_numbers_and_gaps_are_not_filled(tmp_path):
    for number in ("2", "10"):
        (tmp_path / number).mkdir()
        fill("old")(tmp_path / number)
    (tmp_path / "notes").mkdir()
    assert publish(tmp_path, "model.bin", fill("new")).name == "11"


def test_a_number_taken_meanwhile_is_passed_over(tmp_path):
    def write(folder):
        fill("ours")(folder)
        (tmp_path / "1").mkdir()
        fill("theirs")(tmp_path / "1")
        (tmp_path / "2").mkdir()  # empty: a rename would replace it

    assert publish(tmp_path, "model.bin", write).name == "3"
    assert (tmp_path / "1" / "model.bin").read_text() == "theirs"


@pytest.mark.parametrize("step", ["write", "check"])
def test_a_failed_export_leaves_nothing(tmp_path, step):
    def fail(folder):
        fill("half")(folder)
        raise OSError("disk full")

    steps = {"write": fill("whole"), "check": None} | {step: fail}
    with pytest.raises(OSError, match="disk full"):
        publish(tmp_path, "model.bin", **steps)
    assert list(tmp_path.iterdir()) == []


def test_the_check_sees_the_filled_folder_before_it_has_a_number(tmp_path):
    seen = []
    publish(tmp_path, "model.bin", fill("x"), lambda folder: seen.append((folder.name[0], *folder.iterdir())))
    assert seen[0][0] == "."
    assert seen[0][1].name == "model.bin"


def test_a_folder_of_another_format_is_refused(tmp_path):
    publish(tmp_path, "model.bin", fill("x"))
    with pytest.raises(ValueError, match=r"holds versions without other\.bin"):
        publish(tmp_path, "other.bin", fill("x"))


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "model").write_text("x")
    with pytest.raises(ValueError, match=r"is a file\. Give a folder"):
        publish(tmp_path / "model", "model.bin", fill("x"))
