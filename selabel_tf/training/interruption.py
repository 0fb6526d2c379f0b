"""SIGTERM and Ctrl-C: a run that is asked to stop saves after the step it is in, and leaves.

    asked while it trains          the step ends, a checkpoint is written, Interrupted is raised
    asked within a label pass      the pass is abandoned: the checkpoint before it leads to the same labels
    asked anywhere else            Interrupted at once: reading data and measuring leave nothing to save
    no step ends in GRACE_SECONDS  Interrupted, without a new checkpoint
    asked a second time            Interrupted at once

One operation of TensorFlow is never cut: a step that itself takes longer is waited for.
"""

import signal
import threading

GRACE_SECONDS = 8.0
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: try again, and it will go on. Schedulers can be told to do so.


class Interrupted(KeyboardInterrupt):
    """A run stopped because it was asked to; no `except Exception` takes it for an error. `signal`: by what."""

    def __init__(self, name):
        super().__init__(f"Stopped by {name}.")
        self.signal = name


class Interruption:
    """with Interruption() as interruption: signals are caught; outside of the main thread none arrive.

    `waits`: whether somebody looks at `asked` soon, so that nothing is to be raised at once.
    """

    def __init__(self, grace_seconds=GRACE_SECONDS):
        self.grace_seconds = grace_seconds
        self.asked = None  # the signal's name
        self.waits = False
        self._before = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._ask)
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._give_up)
        return self

    def __exit__(self, *error):
        self._stop_clock()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def leave(self):
        """Raises Interrupted if that was asked for."""
        if self.asked:
            self._stop_clock()
            raise Interrupted(self.asked)

    def _ask(self, number, frame):
        again, self.asked = self.asked, signal.Signals(number).name
        if again or not self.waits:
            self.leave()
        signal.setitimer(signal.ITIMER_REAL, self.grace_seconds)

    def _give_up(self, number, frame):
        self.leave()

    def _stop_clock(self):
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
