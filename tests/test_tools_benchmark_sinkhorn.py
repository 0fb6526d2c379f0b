"""The benchmark at sizes where it proves nothing but that it works, in processes of its own."""

import json
from functools import partial

import numpy as np
import pytest
from scipy.special import log_softmax


@pytest.fixture(scope="module")
def benchmark(python):
    return partial(python, "-m", "tools.benchmark_sinkhorn")


@pytest.fixture(scope="module")
def measured(benchmark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    logits = 2 * np.random.default_rng(0).normal(size=(211, 13))
    np.save(folder / "real.npy", log_softmax(logits, axis=1).astype(np.float32))
    done = benchmark(
        "--sizes=499x263",
        f"--scores={folder / 'real.npy'}",
        "--lambdas=7",
        "--solvers=ours,two_updates",
        "--bandwidth=1009x101",
        "--rounding=1023x31",
        f"--output={folder / 'out.json'}",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "out.json").read_text())


def test_all_solvers_reach_the_same_cost_within_the_tolerance(measured):
    _, numbers = measured
    for problem in ({"rows": 499, "clusters": 263}, {"rows": 211, "clusters": 13}):
        results = [r for r in numbers["solvers"] if r["rows"] == problem["rows"]]
        assert [r["solver"] for r in results] == ["ours", "two_updates"]
        assert all(r["clusters"] == problem["clusters"] and r["marginal_error"] <= 1.1e-4 for r in results)
        assert results[0]["cost"] == pytest.approx(results[1]["cost"], rel=1e-3)
        assert all(r["passes"] > 1 and r["seconds"] > 0 and r["peak_bytes"] > 2**20 for r in results)


def test_the_table_has_a_row_for_every_solver_and_problem(measured):
    output, numbers = measured
    table = output[output.index("Sinkhorn solvers") :]
    assert table.count("499x263") == 2 and table.count("real.npy 211x13") == 2
    assert numbers["bandwidth"][0]["ratio_least"] > 0 and "1009x101" in table
    assert "All numbers: " in output


def test_balanced_rounding_is_timed_and_its_sizes_and_cost_are_told(measured):
    output, numbers = measured
    (result,) = numbers["rounding"]
    assert (result["smallest"], result["largest"]) == (33, 33)
    assert result["bound"] <= result["cost"] <= 1.02 * result["bound"]
    assert result["rounding_over_one_pass"] == pytest.approx(
        result["rounding_seconds"] / result["solve_seconds"] * result["passes"]
    )
    assert "1023x31" in output[output.index("Balanced rounding after a solve at lambda 25") :]


def test_what_does_not_fit_into_memory_is_left_out_with_its_need(benchmark):
    output = benchmark("--sizes=50000x1000", "--lambdas=25", "--solvers=two_updates", "--memory_gib=0.5").stdout
    assert "needs about 1.1 GiB of 0.5" in output


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--solvers=theirs", "Unknown solver 'theirs'. Available: ours, two_updates, pot_log, pot_stabilized."),
        ("--sizes=many", "'many' is not a size. Give examples x clusters, e.g. 50000x1000."),
    ],
)
def test_mistakes_are_one_message(benchmark, flag, message):
    done = benchmark(flag)
    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr
