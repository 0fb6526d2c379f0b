"""Import this first in a tool: it imports TensorFlow without the start-up chatter.

TF_CPP_MIN_LOG_LEVEL does not reach what the C++ libraries log while they are being loaded ("All log messages
before absl::InitializeLog()...", "Could not find cuda drivers..."). So stderr is held back during that one
import, and afterwards all of it that is not such a log line is passed on: warnings and errors of Python stay.
The price: if the import ends the whole process (a CPU without AVX), TensorFlow's last words are lost. With
TF_CPP_MIN_LOG_LEVEL=0 nothing is held back.

Imports take seconds, in which somebody may press Ctrl-C: that, too, ends without pages. From `console.run` on it is
told there.
"""

import contextlib
import os
import re
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # TensorFlow leaves oneDNN off on CPUs without AVX-512
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

CHATTER = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog"
    rb"|[IWE]\d{4} [\d:. ]+\S+\.cc:\d+\] "  # I0000 00:00:1794835141.826058    4822 cudart_stub.cc:31] ...
    rb"|\d{4}-\d\d-\d\d [\d:.]+: [IWE] \S+\.cc:\d+\] "  # 2026-11-16 13:18:54.2: I core/port.cc:153] ...
    rb"|To enable the following instructions: "  # second line of cpu_feature_guard's
    rb"|fully_quantize: \d|INFO: Created TensorFlow Lite XNNPACK delegate"  # the TFLite converter and LiteRT
)


def without_pages(kind, error, trace):
    """A sys.excepthook: where in the imports Ctrl-C struck concerns nobody."""
    if issubclass(kind, KeyboardInterrupt):
        print("\nInterrupted.", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


@contextlib.contextmanager
def without_chatter():
    """Holds back what the process writes to file descriptor 2, then passes on all lines but CHATTER."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            for line in held:
                if not CHATTER.match(line):
                    os.write(2, line)


sys.excepthook = without_pages
with contextlib.nullcontext() if os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0" else without_chatter():
    import tensorflow  # noqa: F401
