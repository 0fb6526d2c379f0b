"""One run in one folder, and no ghosts."""

import fcntl
import os
import subprocess
import sys

import pytest

from selabel_tf.training.run_lock import FILE, locked

HOLDER = """
import fcntl, os, sys, time
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.write('{"pid": %d, "host": "elsewhere"}' % os.getpid())
file.flush()
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_run_is_refused_while_the_first_lives_and_not_after_its_death(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder / FILE)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        owner = rf"is in use: a run \(process {holder.pid} on elsewhere\) trains there"
        with pytest.raises(ValueError, match=owner), locked(folder):
            pass
        assert (folder / FILE).exists()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert (folder / FILE).exists()  # the ghost's
    with locked(folder):
        assert str(os.getpid()) in (folder / FILE).read_text()


def test_whoever_has_not_written_its_name_yet_is_respected_too(tmp_path):
    with locked(tmp_path):
        (tmp_path / FILE).write_text("")
        with pytest.raises(ValueError, match="is in use: a run trains there"), locked(tmp_path):
            pass


def test_the_file_goes_with_the_lock_and_so_does_a_folder_with_nothing_in_it(tmp_path):
    with locked(tmp_path / "a" / "run"):
        assert (tmp_path / "a" / "run" / FILE).is_file()
    assert not (tmp_path / "a" / "run").exists()
    with locked(tmp_path / "full"):
        (tmp_path / "full" / "config.json").write_text("{}")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["config.json"]


def test_an_error_frees_the_folder(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "run"):
        raise KeyError
    with locked(tmp_path / "run"):
        pass


def test_a_lock_on_a_file_that_its_holder_has_removed_counts_for_nothing(tmp_path, monkeypatch):
    """Between our opening the file and our locking it, its holder may leave and take the name away."""
    flock, calls = fcntl.flock, []

    def late(file, how):
        if not calls:
            (tmp_path / FILE).unlink()
        calls.append(how)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(tmp_path):
        assert len(calls) == 2
        with pytest.raises(ValueError, match="is in use"), locked(tmp_path):
            pass
