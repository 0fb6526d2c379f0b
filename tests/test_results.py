"""Figures in the texts are those of the runs that are kept as JSON."""

import json
import re
from pathlib import Path

import pytest

from selabel_tf import config as configs
from selabel_tf.evaluation.report import format_cell

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "configs" / "results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_result_says_how_when_and_where_it_was_made(path):
    result = json.loads(path.read_text())
    assert result["command"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"])
    assert result["machine"]


def test_the_readme_shows_the_digits_run_as_it_was():
    result = json.loads((RESULTS / "digits.json").read_text())
    readme = (ROOT / "README.md").read_text()
    for table in result["tables"]:
        for row in table["rows"]:
            assert "| " + " | ".join(map(format_cell, row)) + " |" in readme
    assert f"{result['seconds']} s" in readme
    assert result["date"] in readme


def test_the_digits_run_is_of_the_config_that_is_here():
    result = json.loads((RESULTS / "digits.json").read_text())
    assert result["config_hash"] == configs.config_hash(configs.load(ROOT / "configs" / "digits.py"))


def test_training_figures_in_the_readme_are_the_benchmarks():
    speed = json.loads((RESULTS / "training_speed.json").read_text())
    readme = (ROOT / "README.md").read_text()
    assert f"{speed['step_over_supervised_step']:.2f}" in readme
    assert f"{speed['fit_rate_over_step_rate']:.2f}" in readme


def test_solver_figures_in_the_readme_are_the_benchmarks():
    solvers = json.loads((RESULTS / "sinkhorn.json").read_text())["solvers"]
    readme = (ROOT / "README.md").read_text()
    found = {(s["solver"], s["rows"], s["lambda"]): s for s in solvers if not s["scores"]}
    large = found["ours", 1281167, 25]
    assert large["marginal_error"] < 1e-4
    gibibytes = large["peak_bytes"] / 2**30
    assert f"{large['seconds']:.0f} s, {large['passes']} passes and {gibibytes:.1f} GiB" in readme
    ours, theirs = found["ours", 50000, 25], found["two_updates", 50000, 25]
    assert f"{ours['passes']} passes and {ours['seconds']:.1f} s" in readme
    assert f"take {theirs['passes']} and {theirs['seconds']:.1f} s" in readme


def test_every_export_that_is_kept_agrees_with_keras():
    exports = json.loads((RESULTS / "export.json").read_text())["exports"]
    assert len(exports) == 14
    for export in exports:
        exact = export["quantize"] in (None, "none")
        assert export["largest_difference"] <= 1e-4 or not exact
        least = {"float16": 0.9999, "dynamic": 0.98, "int8": 0.98}.get(export["quantize"], 0.999999)
        assert export["smallest_cosine"] >= least
        assert abs(export["knn_file"] - export["knn_keras"]) <= 0.01
        assert export["quantize"] != "int8" or export["share_of_float"] <= 0.3


def learned(numbers):
    return {row["what"]: row["accuracy"] for row in numbers["knn"]}["learned features"]


def test_retraining_reaches_the_run_that_found_the_labels_within_two_points():
    result = json.loads((RESULTS / "cifar10_cpu_retrain.json").read_text())
    ours, theirs = learned(result["numbers"]), result["source"]["knn"]["learned features"]
    assert ours >= theirs - 0.02
    readme = (ROOT / "README.md").read_text()
    docstring = (ROOT / "configs" / "cifar10_cpu_retrain.py").read_text()
    for text in (readme, docstring):
        assert f"{ours:.3f}" in text and f"{theirs:.3f}" in text
    assert result["facts"]["epochs"] == configs.load(ROOT / "configs" / "cifar10_cpu_retrain.py").epochs
