"""How the tools talk to a person: a progress bar, durations in words, and errors without a traceback."""

import os
import re
import shlex
import shutil
import sys
import warnings
from numbers import Integral
from time import monotonic

from absl import app, flags, logging

TRACEBACK = flags.DEFINE_bool("traceback", False, "Show where an error arose, not only what it says.")

USER_ERRORS = (ValueError, OSError, MemoryError)  # OSError: missing files, permissions, a full disk
BAR_WIDTH = 20
REDRAW_SECONDS = 0.1  # on a terminal
QUIET_SECONDS = 30.0  # elsewhere: a line per tenth of the work, and at least one in this time


class Progress:
    """How far a loop is: one line redrawn on a terminal, sparse plain lines anywhere else.

    with Progress(total=1800, label="Training") as progress:
        progress.update(step, loss=2.31)        # steps done so far, not an increment
        progress.line("Label pass 3: ...")      # printed above the bar

    `start` is what was done before (a resumed run): it counts as done, but not for the rate.
    """

    def __init__(self, total, label, stream=None, *, start=0):
        self.total, self.label = total, label
        self.stream = sys.stdout if stream is None else stream
        self.on_terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.start = self.done = start
        self.metrics = {}
        self.began = monotonic()
        self.shown_at = self.began
        self.shown = None  # `done` in what was last shown
        self.closed = False

    def update(self, done, **metrics):
        """Sets how many of `total` are done; `metrics` are shown behind the bar until others come."""
        self.done = done
        self.metrics = metrics or self.metrics
        silent_for = monotonic() - self.shown_at
        if self.on_terminal:
            due = self.shown is None or silent_for >= REDRAW_SECONDS
        else:
            due = silent_for >= QUIET_SECONDS or self._tenths(done) > self._tenths(self.shown or self.start)
        if due:
            self._show()

    def line(self, text):
        """Prints `text` on a line of its own, above the bar."""
        if self.on_terminal:
            self.stream.write(f"\r\x1b[K{text}\n")
            self._show()
        else:
            self.stream.write(f"{text}\n")
            self.stream.flush()

    def close(self):
        """Shows the last state and leaves the line. Closing twice is harmless."""
        if self.closed:
            return
        self.closed = True
        if self.on_terminal:
            self._show()
            self.stream.write("\n")
        elif self.shown != self.done:
            self._show()
        self.stream.flush()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def _tenths(self, done):
        return 10 * done // self.total if self.total else 10

    def _show(self):
        self.shown, self.shown_at = self.done, monotonic()
        text = self._text()
        if self.on_terminal:
            columns = shutil.get_terminal_size().columns  # a longer line would wrap and could not be redrawn
            self.stream.write(f"\r{text[: columns - 1]}\x1b[K")
        else:
            self.stream.write(f"{text}\n")
        self.stream.flush()

    def _text(self):
        elapsed = monotonic() - self.began
        fraction = min(self.done / self.total, 1.0) if self.total else 1.0
        parts = [self.label]
        if self.on_terminal:
            filled = int(BAR_WIDTH * fraction)
            parts.append(f"[{'#' * filled}{'-' * (BAR_WIDTH - filled)}]")
        parts.append(f"{int(100 * fraction)}% {self.done}/{self.total}")
        rate = (self.done - self.start) / elapsed if elapsed > 0 else 0.0
        if rate > 0:
            parts.append(f"{rate:.3g}/s" if rate < 1000 else f"{rate:.0f}/s")
        if self.done >= self.total or self.closed:
            parts.append(f"in {duration(elapsed)}")
        elif rate > 0:
            parts.append(f"{duration((self.total - self.done) / rate)} left")
        parts += [f"{name} {_number(value)}" for name, value in self.metrics.items()]
        return "  ".join(parts)


def duration(seconds):
    """Seconds in words, in at most two units: '0.4 s', '12 s', '1 min 12 s', '2 h 5 min', '1 d 3 h'."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    seconds = round(seconds)  # first, so that 59.7 s does not become '60 s'
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"


def command(tool, *words):
    """A command line of ours that can be pasted into a shell, whatever the names in it."""
    return f"python -m tools.{tool} {shlex.join(map(str, words))}"


def run(main, *, words=False):
    """Runs `main(argv)` as an absl program in which a mistake of the user is one message and exit code 1.

    Only USER_ERRORS are taken for such: any other exception is ours, and keeps its traceback. Ctrl-C exits
    with 130. words: whether the program takes any beside its flags; if not, they are refused. A home folder (~) is
    meant as such wherever a value begins with it: a shell leaves it alone behind a "=".
    """

    def guarded(argv):
        sys.excepthook = sys.__excepthook__  # of tools.quiet, for the time of imports
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # libraries log what they read and where
        warnings.showwarning = lambda message, *_: print(f"Warning: {message}", file=sys.stderr)
        argv = [argv[0], *map(_at_home, argv[1:])]
        for name in flags.FLAGS:
            flags.FLAGS[name].value = _at_home(flags.FLAGS[name].value)
        try:
            if argv[1:] and not words:
                hint = f" Each setting needs a --set of its own: --set {argv[1]}" if "=" in argv[1] else ""
                raise ValueError(f"There is {argv[1]!r} among the flags, and it belongs to none of them.{hint}")
            return main(argv)
        except KeyboardInterrupt:
            if TRACEBACK.value:
                raise
            print("\nInterrupted.", file=sys.stderr)
            return 130
        except Exception as error:
            told = _in_own_words(error)
            if TRACEBACK.value or not isinstance(told, USER_ERRORS):
                raise
            print(f"Error: {_message(told)}\n(--traceback shows where it arose.)", file=sys.stderr)
            return 1

    app.run(guarded)


def _at_home(value):
    """A value of a flag with ~ at the start of a path replaced, that of --set path=~/x included; lists alike."""
    if isinstance(value, list):
        return [_at_home(one) for one in value]
    if not isinstance(value, str):
        return value
    name, equals, path = value.partition("=") if not value.startswith("~") else ("", "", value)
    return name + equals + os.path.expanduser(path)


def _in_own_words(error):
    """What TensorFlow wraps in pages of its own: a damaged image by its name, memory that is not there."""
    if not type(error).__module__.startswith("tensorflow."):
        return error
    import tensorflow as tf  # no cost: the error comes from it

    from selabel_tf.reader_errors import own_words

    if isinstance(error, tf.errors.ResourceExhaustedError):
        return MemoryError(re.sub(r"{{.*?}} *| *\[Op:.*", "", error.message.splitlines()[0]))
    try:
        with own_words():
            raise error
    except Exception as told:
        return told


def _message(error):
    """'No such file or directory: x.py' where Python says "[Errno 2] No such file or directory: 'x.py'"."""
    if isinstance(error, MemoryError):
        return f"There is not enough memory ({error}). What a run needs:  python -m tools.doctor --config=..."
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    return str(error) or type(error).__name__


def _number(value):
    """Whole numbers and text as they are, four digits of anything else (Python, NumPy or a scalar tensor)."""
    return str(value) if isinstance(value, Integral | str) else f"{float(value):.4g}"
