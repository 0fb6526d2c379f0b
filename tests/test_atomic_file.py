import os
import stat

import pytest

from selabel_tf.atomic_file import atomic_file, remove_leftovers, write_atomically


@pytest.mark.parametrize("data", ["one\r\ntwo\n Zürich 東京", b"\x00\xff\r\n"])
def test_a_file_holds_exactly_what_was_written(tmp_path, data):
    path = tmp_path / "file"
    write_atomically(path, data)
    assert path.read_bytes() == (data.encode("utf-8") if isinstance(data, str) else data)
    write_atomically(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert os.listdir(tmp_path) == ["file"]


def test_a_writer_that_raises_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write("half of the ne")
        file.flush()
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_readers_see_the_old_file_until_the_block_ends(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_file(path, "wb") as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
        (temporary,) = set(os.listdir(tmp_path)) - {"file"}
        assert temporary.startswith(".")  # beside the target: a rename across file systems is not atomic
    assert path.read_bytes() == b"new"


def test_bytes_are_forced_to_disk_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, os.replace

    def recorded_sync(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def recorded_replace(source, target):
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    write_atomically(tmp_path / "file", "text")
    assert calls == ["file", "rename", "folder"]


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "ordinary").write_text("")
    write_atomically(tmp_path / "atomic", "")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_a_link_keeps_pointing_at_the_file_behind_it(tmp_path):
    (tmp_path / "behind").write_text("old")
    (tmp_path / "link").symlink_to("behind")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "behind").read_text() == "new"


def test_names_that_are_no_utf8_are_written_as_their_own_bytes(tmp_path):
    write_atomically(tmp_path / "file", os.fsdecode(b"caf\xe9.png"))
    assert (tmp_path / "file").read_bytes() == b"caf\xe9.png"


def test_what_kills_left_is_removed_and_nothing_else(tmp_path):
    for name in (".0123456789abcdef.tmp", ".0123456789abcdeg.tmp", ".notes.tmp", "0123456789abcdef.tmp"):
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".0123456789abcdeg.tmp", ".notes.tmp", "0123456789abcdef.tmp"]


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist. Create it first"):
        write_atomically(tmp_path / "nowhere" / "file", "text")
    with pytest.raises(IsADirectoryError, match=r"is a folder. Give the path of a file"):
        write_atomically(tmp_path, "text")
    with pytest.raises(TypeError, match=r"bytes or text, but data is of type list"):
        write_atomically(tmp_path / "file", ["text"])
    with (
        pytest.raises(ValueError, match=r"mode='a': .*Use 'w' for text or 'wb' for bytes"),
        atomic_file(tmp_path / "f", "a"),
    ):
        pass
    assert os.listdir(tmp_path) == []
