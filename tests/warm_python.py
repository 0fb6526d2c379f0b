"""A Python that has TensorFlow imported: it forks a process for each command line, 5 seconds earlier than a cold one.

    python warm_python.py < requests > answers      a JSON object per line, there and back

A request is {"arguments": what follows `python`: -m MODULE ... or -c CODE ..., "cwd", "environment", "stdin",
"stdout", "stderr": paths}; the answer is the exit code, as subprocess has it. TensorFlow may be forked as long as
nothing was computed, OpenBLAS only without threads: SciPy's waits for ever for threads that stayed behind. The child
leaves the loop and comes to the interpreter's own end, as any program.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when it is loaded

import tools.quiet  # noqa: F401  TensorFlow, and without its chatter

# isort: split
import json
import runpy
import signal
import sys

import keras  # noqa: F401
import matplotlib.pyplot as plt  # noqa: F401
import sklearn.cluster  # noqa: F401
import tensorflow_datasets as tfds  # noqa: F401

SECONDS = 600


def serve():
    """Answers requests until there are no more: None. In a child: its request."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            return request
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)
    return None


def become(request):
    """What a process of its own would have had from the beginning."""
    signal.alarm(SECONDS)
    for descriptor, name, how in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_WRONLY), (2, "stderr", os.O_WRONLY)):
        os.dup2(os.open(request[name], how), descriptor)
    sys.stdin = os.fdopen(0, closefd=False)  # the other one may have read ahead
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]
    how, what, *rest = request["arguments"]
    if how == "-m":
        sys.argv = [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [how, *rest]
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


request = serve()
if request is not None:
    become(request)
