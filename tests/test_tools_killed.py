"""The real program, killed: however often and whenever, it ends as if it had been left alone. Bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from selabel_tf.training.soak import ending
from selabel_tf.training.trained_run import load_run

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}
SEED = 5
SETTINGS = (
    "data.examples_per_class=6",
    "model.num_clusters=5,7",
    "label.num_relabels=9",
    "label.heads=in_turn",
    "label.views=1",
    "evaluation.knn=false",
    "evaluation.kmeans=false",
    "evaluation.knn_every=4",
    "evaluation.knn_k=5",
    "epochs=14",
    "batch_size=13",
    "checkpoint_steps=2",
)


def begin(folder, **options):
    flags = [f"--set={setting}" for setting in SETTINGS]
    command = [sys.executable, "-m", "tools.train", "--config=configs/digits.py", f"--workdir={folder}", *flags]
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, text=True, stderr=subprocess.PIPE, **options)


def newest(folder):
    return max((path.name for path in (folder / "checkpoints").glob("step-*")), default="")


def wait_for_checkpoints(process, folder, count, limit=240):
    """Waits until the process has written so many checkpoints."""
    seen, end = {newest(folder)}, time.monotonic() + limit
    while len(seen) <= count:
        assert process.poll() is None, f"ended before it could be killed: {process.stderr.read()}"
        assert time.monotonic() < end, "no progress"
        time.sleep(0.002)
        seen.add(newest(folder))


def test_five_kills_and_a_sigterm_leave_no_trace(tmp_path):
    draw = random.Random(SEED)
    print(f"moments drawn from seed {SEED}")
    alone = begin(tmp_path / "alone", stdout=subprocess.DEVNULL)  # at the same time: there is another core
    folder = tmp_path / "killed"
    for number in range(6):
        process = begin(folder, stdout=subprocess.PIPE)
        checkpoints, wait = draw.randint(1, 4), draw.uniform(0, 0.25)
        wait_for_checkpoints(process, folder, checkpoints)
        time.sleep(wait)
        last = number == 5
        process.send_signal(signal.SIGTERM if last else signal.SIGKILL)
        sent = time.monotonic()
        output, errors = process.communicate(timeout=120)
        assert time.monotonic() - sent < 10  # the grace period that tools.train promises
        print(f"kill {number + 1}: {checkpoints} checkpoints and {wait:.3f} s after its beginning, at {newest(folder)}")
        assert process.returncode == (75 if last else -signal.SIGKILL), errors
        assert "Resuming at step " in output or number == 0
    step = load_run(folder).checkpoint.facts["step"]
    told = f"Stopped by SIGTERM. The same command goes on from step {step}:"
    assert errors.splitlines()[0] == told
    assert errors.splitlines()[1].startswith("  python -m tools.train --config=configs/digits.py --workdir=")
    for process in (begin(folder, stdout=subprocess.DEVNULL), alone):
        assert process.wait(timeout=300) == 0, process.stderr.read()
        process.stderr.close()
    assert ending(folder) == ending(tmp_path / "alone")
    assert (folder / "MODEL_CARD.md").is_file()
    assert not list(folder.glob(".*")) and not list(folder.glob("checkpoints/.*"))


def test_a_signal_before_the_run_has_begun_ends_with_the_same_code(tmp_path):
    program = (
        "import tools.train as t, os, sys\nsys.argv[0] = t.__file__\n"
        "t.doctor.at_start = lambda _: os.kill(os.getpid(), 15)\nt.console.run(t.main)"
    )
    arguments = ["--config=configs/digits.py", f"--workdir={tmp_path / 'run'}"]
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (75, "")
    first, second = done.stderr.splitlines()
    assert first == "Stopped by SIGTERM. The same command goes on from the beginning, as nothing was saved yet:"
    assert second == f"  python -m tools.train {' '.join(arguments)}"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_twenty_five_kills_by_the_clock_within_writes_and_within_label_passes(tmp_path):
    command = [sys.executable, "-m", "tools.soak", f"--workdir={tmp_path}", "--kills=25", f"--seed={SEED}"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=1800)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "soak.json").read_text())
    assert sum(record["kills"].values()) == 25 and all(record["kills"].values())
    assert record["unequal"] == []
    assert "25 kills" in done.stdout.splitlines()[-1]
