"""The progress bar on a terminal and in a file, durations, and what a user sees of an error."""

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tools import console

ROOT = Path(__file__).resolve().parents[1]


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def screen(self):
        """The lines a person sees in the end: what follows a carriage return replaces what was before it."""
        rows = self.getvalue().replace("\x1b[K", "").split("\n")
        return [row.rsplit("\r", 1)[-1] for row in rows]


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets by hand: clock[0] = seconds."""
    now = [0.0]
    monkeypatch.setattr(console, "monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    return now


def test_a_terminal_shows_one_line_with_bar_rate_time_left_and_metrics(clock):
    terminal = Terminal()
    progress = console.Progress(200, "Training", terminal)
    clock[0] = 10.0
    progress.update(50, loss=2.34567, heads=7)
    assert terminal.screen() == ["Training  [#####---------------]  25% 50/200  5/s  30 s left  loss 2.346  heads 7"]


def test_a_terminal_is_redrawn_ten_times_a_second_at_most(clock):
    terminal = Terminal()
    progress = console.Progress(1009, "Training", terminal)
    for step in range(1, 1010):
        clock[0] = step / 1009
        progress.update(step)
    assert 5 <= terminal.getvalue().count("\r") <= 11
    progress.close()
    assert "100% 1009/1009" in terminal.screen()[0]


def test_a_line_comes_above_the_bar_and_the_bar_goes_on_below(clock):
    terminal = Terminal()
    progress = console.Progress(4, "Training", terminal)
    clock[0] = 1.0
    progress.update(1)
    progress.line("Label pass 1: converged")
    clock[0] = 2.0
    progress.update(2)
    progress.close()
    first, bar, end = terminal.screen()
    assert first == "Label pass 1: converged"
    assert bar.startswith("Training  [##########----------]  50% 2/4")
    assert end == ""


def test_a_bar_longer_than_the_terminal_is_cut_so_that_it_does_not_wrap(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "31")
    terminal = Terminal()
    console.Progress(200, "Training", terminal).update(50, loss=2.3)
    assert len(terminal.screen()[0]) == 30


def test_a_file_gets_a_plain_line_for_every_tenth_of_the_work(clock):
    file = io.StringIO()
    with console.Progress(1000, "Training", file) as progress:
        for step in range(1, 1001):
            clock[0] = step / 100
            progress.update(step, loss=0.5)
    lines = file.getvalue().splitlines()
    assert [line.split("  ")[1] for line in lines] == [f"{10 * n}% {100 * n}/1000" for n in range(1, 11)]
    assert lines[0] == "Training  10% 100/1000  100/s  9.0 s left  loss 0.5"
    assert lines[-1] == "Training  100% 1000/1000  100/s  in 10 s  loss 0.5"
    assert "\r" not in file.getvalue() and "\x1b" not in file.getvalue()


def test_a_file_gets_a_line_every_30_seconds_of_slow_work(clock):
    file = io.StringIO()
    progress = console.Progress(10_007, "Training", file)
    for step in range(1, 101):
        clock[0] = step * 1.0
        progress.update(step)
    assert [line.split("  ")[1] for line in file.getvalue().splitlines()] == [
        "0% 30/10007",
        "0% 60/10007",
        "0% 90/10007",
    ]


def test_a_terminal_without_cursor_control_gets_plain_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    progress = console.Progress(1, "Training", terminal)
    progress.update(1)
    progress.line("text")
    assert terminal.getvalue() == "Training  100% 1/1  in 0.0 s\ntext\n"


def test_what_a_resumed_run_had_done_before_does_not_count_for_the_rate(clock):
    file = io.StringIO()
    progress = console.Progress(1000, "Training", file, start=490)
    clock[0] = 5.0
    progress.update(500)
    assert file.getvalue() == "Training  50% 500/1000  2/s  4 min 10 s left\n"


def test_metrics_stay_until_others_come_and_may_be_numpy_scalars_or_text(clock):
    file = io.StringIO()
    progress = console.Progress(20, "Passes", file)
    progress.update(2, error=np.float32(1.23456e-5), rows=np.int64(123456), state="open")
    progress.update(4)
    progress.update(6, error=float("nan"))
    tails = [line.split("  ", 2)[2] for line in file.getvalue().splitlines()]
    assert tails == ["error 1.235e-05  rows 123456  state open"] * 2 + ["error nan"]


def test_closing_shows_the_last_state_once(clock):
    file = io.StringIO()
    progress = console.Progress(100, "Training", file)
    progress.update(3)
    progress.close()
    progress.close()
    assert file.getvalue() == "Training  3% 3/100  in 0.0 s\n"


def test_nothing_to_do_is_done(clock):
    file = io.StringIO()
    console.Progress(0, "Training", file).close()
    assert file.getvalue() == "Training  100% 0/0  in 0.0 s\n"


def test_progress_goes_to_standard_output_by_default(clock, capsys):
    console.Progress(1, "Training").update(1)
    assert capsys.readouterr().out.startswith("Training  100% 1/1")


@pytest.mark.parametrize(
    "seconds, words",
    [
        (0.04, "0.0 s"),
        (0.42, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.7, "1 min 0 s"),
        (72, "1 min 12 s"),
        (3599.7, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (86399, "1 d 0 h"),
        (97200, "1 d 3 h"),
    ],
)
def test_durations_are_in_words_of_at_most_two_units(seconds, words):
    assert console.duration(seconds) == words


def run_tool(raising, *flags):
    """Runs a real absl program in a fresh process whose main ends with the statement `raising`."""
    program = f"from tools import console\ndef main(argv):\n    print('begun')\n    {raising}\nconsole.run(main)"
    return subprocess.run(
        [sys.executable, "-c", program, *flags], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "raising, message",
    [
        ("raise ValueError('N=3 is less than K=5.')", "N=3 is less than K=5."),
        ("raise ValueError", "ValueError"),
        ("raise FileExistsError('runs/digits exists.')", "runs/digits exists."),
        ("open('absent.txt')", "No such file or directory: absent.txt"),
        ("open('tools')", "Is a directory: tools"),
        ("open('LICENSE/absent')", "Not a directory: LICENSE/absent"),
        ("raise PermissionError(13, 'Permission denied', 'x')", "Permission denied: x"),
    ],
)
def test_a_mistake_of_the_user_is_one_message_and_exit_code_1(raising, message):
    result = run_tool(raising)
    assert result.returncode == 1
    assert result.stdout == "begun\n"
    assert result.stderr == f"Error: {message}\n(--traceback shows where it arose.)\n"


@pytest.mark.parametrize(
    ("word", "hint"),
    [("extra", ""), ("label.num_relabels=4", " Each setting needs a --set of its own: --set label.num_relabels=4")],
)
def test_a_word_that_belongs_to_no_flag_is_refused_before_anything_is_done(word, hint):
    result = run_tool("pass", word)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"Error: There is {word!r} among the flags, and it belongs to none of them.{hint}\n" in result.stderr


def test_a_tool_that_takes_words_gets_them():
    program = "from tools import console\nconsole.run(lambda argv: print(argv[1:]), words=True)"
    result = subprocess.run([sys.executable, "-c", program, "a", "b=c"], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "['a', 'b=c']\n")


def test_a_home_folder_is_meant_as_such_wherever_a_value_begins_with_it():
    program = """
from absl import flags
from tools import console
flags.DEFINE_string("workdir", None, "")
flags.DEFINE_multi_string("set", [], "")
def main(argv):
    print(argv[1:], flags.FLAGS.workdir, flags.FLAGS.set)
console.run(main, words=True)
"""
    given = ["--workdir=~/runs/a", "--set", "data.path=~/photos", "--set=name=a~b", "~/runs/b", "c~"]
    command, at_home = [sys.executable, "-c", program, *given], {**os.environ, "HOME": "/there"}
    result = subprocess.run(command, cwd=ROOT, env=at_home, capture_output=True, text=True)
    assert result.stdout == "['/there/runs/b', 'c~'] /there/runs/a ['data.path=/there/photos', 'name=a~b']\n"


def test_a_warning_is_one_line():
    result = run_tool("import warnings; warnings.warn('The newest checkpoint is damaged.')")
    assert (result.returncode, result.stderr) == (0, "Warning: The newest checkpoint is damaged.\n")


def test_a_command_that_is_shown_can_be_pasted():
    shown = console.command("knn", "--workdir=my runs/a", "--k=5")
    assert shlex.split(shown) == ["python", "-m", "tools.knn", "--workdir=my runs/a", "--k=5"]
    assert console.command("report", ROOT / "runs") == f"python -m tools.report {ROOT / 'runs'}"


@pytest.mark.parametrize("tool", ["clusters", "export", "finetune", "knn", "labels", "linear_probe", "semi_supervised"])
def test_help_lists_the_flags_that_tools_share(tool, python):
    output = python("-m", f"tools.{tool}", "--help").stdout
    assert re.search(r"^  --workdir: The folder of the run", output, re.MULTILINE)
    assert re.search(r"^  --set: Judges on other images", output, re.MULTILINE)


DAMAGED = """
import tools.quiet
import tensorflow as tf
def rows():
    yield 1
    raise ValueError("photos/7.png cannot be decoded. Remove it.")
batches = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int32))
list(batches)
"""


def test_a_damaged_image_is_named_without_the_pages_that_tensorflow_wraps_it_in():
    result = run_tool(f"exec({DAMAGED!r}, {{}})")
    assert result.returncode == 1
    assert result.stderr == ("Error: photos/7.png cannot be decoded. Remove it.\n(--traceback shows where it arose.)\n")


def test_ctrl_c_is_one_word_and_exit_code_130():
    result = run_tool("raise KeyboardInterrupt")
    assert result.returncode == 130
    assert result.stderr == "\nInterrupted.\n"


@pytest.mark.parametrize("error", ["ValueError", "KeyboardInterrupt"])
def test_the_traceback_flag_shows_where_an_error_arose(error):
    result = run_tool(f"raise {error}('here')", "--traceback")
    assert result.returncode != 0
    assert "Traceback" in result.stderr and f"{error}: here" in result.stderr


def test_memory_that_is_not_there_is_told_with_what_to_do():
    result = run_tool("raise MemoryError('of 3 TiB')")
    assert result.returncode == 1
    assert result.stderr.startswith(
        "Error: There is not enough memory (of 3 TiB). What a run needs:  python -m tools.doc"
    )


def test_an_error_of_ours_keeps_its_traceback():
    result = run_tool("[][1]")
    assert result.returncode == 1
    assert "Traceback" in result.stderr and "IndexError" in result.stderr


def test_a_tool_that_succeeds_exits_with_0():
    result = run_tool("return None")
    assert (result.returncode, result.stdout, result.stderr) == (0, "begun\n", "")


LOGGING = "from absl import logging; logging.info('read a file'); logging.warning('beware')"


def test_libraries_may_warn_but_not_chat():
    result = run_tool(LOGGING)
    assert "beware" in result.stderr
    assert "read a file" not in result.stderr


def test_verbosity_lets_them_chat():
    assert "read a file" in run_tool(LOGGING, "--verbosity=0").stderr


def quiet_python(program, **environment):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "GRPC_"))}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_tensorflow_starts_and_computes_without_a_word_and_with_onednn_on():
    result = quiet_python(
        "import tools.quiet, os, keras, tensorflow as tf\n"
        "keras.layers.Conv2D(3, 3)(tf.ones([2, 5, 7, 1]))\n"
        "print(os.environ['TF_ENABLE_ONEDNN_OPTS'], os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    )
    assert result.stdout == "1 3\n"
    assert result.stderr == ""


def test_settings_the_user_made_are_kept_and_log_level_0_shows_everything(tmp_path):
    (tmp_path / "tensorflow.py").write_text("import os; os.write(2, b'I0000 00:00:17.8  482 port.cc:15] on\\n')")
    program = "import tools.quiet, os; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    settings = {"TF_ENABLE_ONEDNN_OPTS": "0", "PYTHONPATH": str(tmp_path)}
    quiet = quiet_python(program, **settings)
    assert (quiet.stdout, quiet.stderr) == ("0\n", "")
    loud = quiet_python(program, **settings, TF_CPP_MIN_LOG_LEVEL="0")
    assert (loud.stdout, loud.stderr) == ("0\n", "I0000 00:00:17.8  482 port.cc:15] on\n")


def test_ctrl_c_while_modules_are_imported_is_one_word(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise KeyboardInterrupt")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    result = subprocess.run(
        [sys.executable, "-c", "import tools.quiet"], env=environment, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (-signal.SIGINT, "\nInterrupted.\n")
    (tmp_path / "tensorflow.py").write_text("raise ImportError('another error')")
    result = subprocess.run(
        [sys.executable, "-c", "import tools.quiet"], env=environment, capture_output=True, text=True
    )
    assert result.stderr.startswith("Traceback") and "ImportError: another error" in result.stderr


def test_only_log_lines_of_cpp_are_held_back_not_what_python_or_a_fatal_error_says(capfd):
    from tools.quiet import without_chatter

    with pytest.raises(ImportError, match="propagates"), without_chatter():
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
        os.write(2, b"I0000 00:00:1794835141.826058    4822 cudart_stub.cc:31] Could not find cuda drivers\n")
        os.write(2, b"E0000 00:00:1794835401.451852    5501 cuda_platform.cc:52] failed call to cuInit\n")
        os.write(2, b"2026-11-16 13:18:54.123456: I tensorflow/core/util/port.cc:153] oneDNN is on\n")
        os.write(2, b"To enable the following instructions: AVX2 FMA\n")
        os.write(2, b"<string>:1: DeprecationWarning: old\n")
        os.write(2, b"F0000 00:00:1794835141.826058    4822 cpu_feature_guard.cc:20] compiled to use AVX\n")
        os.write(2, b"an end without a newline")
        raise ImportError("propagates")
    os.write(2, b" and on")
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "<string>:1: DeprecationWarning: old"
    assert said[1].startswith("F0000")
    assert said[2:] == ["an end without a newline and on"]
