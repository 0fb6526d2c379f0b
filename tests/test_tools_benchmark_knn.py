"""The benchmark at a size where it proves nothing but that it works, in processes of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tools import benchmark_knn

ROOT = Path(__file__).resolve().parents[1]


def benchmark(*arguments):
    command = [sys.executable, "-m", "tools.benchmark_knn", *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=600)


def test_both_are_measured_and_agree(tmp_path):
    flags = ("--sizes=401x53x7", "--k=11", "--sigma=0.2", "--classes=3", "--turns=1", f"--output={tmp_path / 'out'}")
    done = benchmark(*flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("401x53x7") == 2 and f"All numbers: {tmp_path / 'out'}" in done.stdout
    assert "k=11, sigma=0.2, 3 classes; seconds: median of 1 turns." in done.stdout
    ours, theirs = json.loads((tmp_path / "out").read_text())["results"]
    assert (ours["contestant"], theirs["contestant"]) == ("ours", "scikit_learn")
    for result in (ours, theirs):
        assert (result["bank"], result["queries"], result["features"], result["k"]) == (401, 53, 7, 11)
        assert len(result["seconds"]) == 1 and result["median_seconds"] > 0 and result["peak_bytes"] > 2**20
        assert result["differ"] == 0


def test_the_problem_is_the_same_every_time_and_can_be_learned():
    bank, classes, queries = benchmark_knn.problem(401, 53, 7, 3)
    again = benchmark_knn.problem(401, 53, 7, 3)
    assert bank.shape == (401, 7) and queries.shape == (53, 7) and bank.dtype == np.float32
    for one, other in zip((bank, classes, queries), again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert set(classes) == {0, 1, 2}


def test_what_is_not_a_size_is_refused():
    assert benchmark_knn.size("50x10x3") == (50, 10, 3)
    for text in ("50x10", "50x10xmany", "50x0x3"):
        with pytest.raises(ValueError, match=f"'{text}' is not a size. Give bank x queries x features"):
            benchmark_knn.size(text)


def test_mistakes_are_one_message():
    done = benchmark("--sizes=7x5x3", "--k=11")
    assert done.returncode == 1
    assert "k=11, but each query has 7 candidates" in done.stderr and "Traceback" not in done.stderr
