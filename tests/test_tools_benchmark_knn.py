"""The benchmark at a size where it proves nothing but that it works, in processes of its own."""

import json
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def benchmark(python):
    return partial(python, "-m", "tools.benchmark_knn")


def test_both_are_measured_and_agree(benchmark, tmp_path):
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


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--sizes=7x5x3", "--k=11"], "k=11, but each query has 7 candidates"),
        (["--sizes=50x10"], "'50x10' is not a size. Give bank x queries x features, e.g. 50000x10000x128."),
        (["--sizes=50x0x3"], "'50x0x3' is not a size."),
    ],
)
def test_mistakes_are_one_message(benchmark, flags, message):
    done = benchmark(*flags)
    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr


def test_the_run_that_is_kept_shows_ours_at_least_as_fast_and_in_less_memory():
    kept = json.loads((ROOT / "configs" / "results" / "knn_speed.json").read_text())["results"]
    ours, theirs = kept
    assert (ours["bank"], ours["queries"], ours["features"]) == (50000, 10000, 128)
    assert (ours["contestant"], theirs["contestant"]) == ("ours", "scikit_learn")
    assert max(ours["seconds"]) <= min(theirs["seconds"]) and ours["growth_bytes"] < theirs["growth_bytes"]
    assert theirs["differ"] == 0
