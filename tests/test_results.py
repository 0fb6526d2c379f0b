"""Figures in the texts are those of the runs that are kept as JSON."""

import ast
import json
import re
from pathlib import Path

import pytest

from selabel_tf import config as configs
from selabel_tf.evaluation import trial_tables
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
    small = next(result for result in speed["results"] if result["network"] == "cifar10_cpu")["clock"]
    assert f"a step takes {small['step_over_supervised_step']:.2f} times a plain supervised step" in readme
    assert f"and {small['step_over_best_torch_step']:.2f} times the same step in PyTorch" in readme
    assert f"reaches {small['fit_rate_over_step_rate']:.2f} of the rate of the step alone" in readme
    assert f"{small['features_over_inference']:.2f} times a pass of plain inference" in readme
    assert speed["date"] in readme


def test_training_is_as_fast_as_was_asked():
    results = json.loads((RESULTS / "training_speed.json").read_text())["results"]
    clock = {result["network"]: result["clock"] for result in results}
    assert all(figures["fit_rate_over_step_rate"] >= 0.85 for figures in clock.values())
    assert all(figures["features_over_inference"] <= 1.3 for figures in clock.values())
    assert set(clock) == {"cifar10_cpu", "alexnet_64", "alexnet_224"}
    assert clock["cifar10_cpu"]["step_over_best_torch_step"] <= 1


def test_a_pass_and_balanced_rounding_take_as_long_as_was_asked():
    figures = json.loads((RESULTS / "sinkhorn.json").read_text())
    assert max(size["ratio_least"] for size in figures["bandwidth"]) <= 1.6
    (rounding,) = figures["rounding"]
    assert (rounding["rows"], rounding["clusters"]) == (1_000_000, 3000)
    assert (rounding["smallest"], rounding["largest"]) == (333, 334) and rounding["rounding_over_one_pass"] < 6


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


def test_no_kill_of_the_soaks_left_a_trace_and_the_notes_say_how_many_there_were():
    result = json.loads((RESULTS / "soak.json").read_text())
    assert result["kills"] == sum(sum(soak["kills"].values()) for soak in result["soaks"])
    assert result["unequal"] == 0 and not any(soak["unequal"] for soak in result["soaks"])
    assert f"{result['kills']} kills in {result['runs']} runs" in (ROOT / "BUILD_NOTES.md").read_text()


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


@pytest.mark.parametrize("name", ["README.md", "BUILD_NOTES.md"])
def test_the_tables_of_trials_are_those_of_the_json(name):
    trials = json.loads((RESULTS / "cifar10_trials.json").read_text())["trials"]
    text = (ROOT / name).read_text()
    assert trial_tables.renewed(text, trials, name) == text, "python -m tools.trials renews it"


def test_every_row_that_trials_count_for_is_in_the_readme():
    trials = json.loads((RESULTS / "cifar10_trials.json").read_text())["trials"]
    readme = (ROOT / "README.md").read_text()
    for row in {row for trial in trials for row in trial["rows"]}:
        part, _, title = row.rpartition(": ")
        assert f"<!-- trials: rows of {part} -->" in readme or not part, row
        assert f"\n| {title} | " in readme


def numbers_in(content):
    """All numbers of a JSON value, those written in its texts included."""
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from numbers_in(part)
    elif isinstance(content, str):
        yield from map(float, re.findall(r"\d+\.\d+", content))
    elif isinstance(content, int | float):
        yield float(content)


def without_source(text, numbers):
    """The decimal fractions of `text` that are none of `numbers`: as they are, in percent, or in GiB."""
    missing = []
    for figure in re.findall(r"(?<![\w.=-])\d+\.\d+(?![\w.]*\.\d)", re.sub(r"`[^`]*`", "", text)):
        digits = len(figure.partition(".")[2])
        forms = (f"{value * scale:.{digits}f}" for value in numbers for scale in (1, 100, 2.0**-30))
        if figure not in forms:
            missing.append(figure)
    return missing


def test_a_number_without_source_is_seen():
    numbers = list(numbers_in({"a": [0.4381, "took 9.25 s"], "b": {"bytes": 3 * 2**29}}))
    assert without_source("kNN 43.8 or 0.438, 9.25 s, 1.5 GiB (`--l2=0.77`), version=1.9", numbers) == []
    assert without_source("kNN 43.9 and 0.44, 0.437", numbers) == ["43.9", "0.437"]


def numbers_named_in(paragraph):
    """All numbers of the JSON files that a paragraph names."""
    names = re.findall(r"configs/results/(\w+\.json)", paragraph)
    return [number for name in names for number in numbers_in(json.loads((RESULTS / name).read_text()))]


def test_no_result_in_the_readme_is_without_its_json():
    readme = (ROOT / "README.md").read_text()
    section = readme[readme.index("\n## Results") : readme.index("\nThat's it.")]
    for paragraph in section.split("\n\n"):
        if not paragraph.startswith("|"):  # tables: the tests above
            missing = without_source(paragraph.replace("sigma = 0.1", ""), numbers_named_in(paragraph))
            assert not missing, f"{paragraph!r} names no JSON with these figures"


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.py")), ids=lambda path: path.stem)
def test_no_result_in_a_config_is_without_its_json(path):
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    for paragraph in docstring.split("\n\n"):
        if re.search(r"\b(kNN|linear probe|NMI|accuracy)\b[^=]{0,40}?\d+\.\d", paragraph):
            missing = without_source(paragraph, numbers_named_in(paragraph))
            assert not missing, f"{paragraph!r} names no JSON with these figures"


def test_report_figures_in_the_texts_are_the_measured_ones_and_within_what_was_asked():
    report = json.loads((RESULTS / "report.json").read_text())
    readme = (ROOT / "README.md").read_text()
    digits, cifar, large = (report[name] for name in ("digits", "cifar10", "large"))
    assert digits["megabytes"] < 3 and cifar["megabytes"] < 40
    assert max(large["ready_ms"] + cifar["ready_ms"]) < 2000 and cifar["seconds"] < 120
    assert f"a page of {digits['megabytes']:.1f} MB" in readme and f"one of {cifar['megabytes']:.0f} MB" in readme
    assert f"in {cifar['seconds']:.0f} s" in readme


def test_the_recipe_is_as_far_above_its_baselines_as_was_asked():
    trials = json.loads((RESULTS / "cifar10_trials.json").read_text())["trials"]
    rows = {}
    for trial in trials:
        for row in trial["rows"]:
            rows.setdefault(row, []).append(trial)
    best = rows["cifar10_cpu, the best of the trials [128 x 1]"]
    assert {trial["seed"] for trial in best} == {0, 1}
    above = {
        "random weights": 0.15,
        "random labels, never optimised [128 x 1]": 0.1,
        "decay: 1e-3, random labels, never optimised [128 x 1]": 0.1,
        "labels: random, never optimised [128 x 1]": 0.1,
        "labels: random, never optimised [1000 x 1]": 0.1,
        "authors' algorithm [128 x 1]": 0.05,
    }
    for row, points in above.items():
        for measure in ("knn", "linear"):
            assert min(t[measure] for t in best) >= max(t[measure] for t in rows[row]) + points
    config = configs.load(ROOT / "configs" / "cifar10_cpu.py")
    for trial in best:  # they were trained by the settings that the config has now
        settings = [text for text in trial["overrides"] if not text.startswith(("evaluation.", "seed="))]
        made = configs.override(configs.load(ROOT / trial["config"]), settings)
        changed = [line for line in configs.differences(made, config) if not line.startswith("evaluation.")]
        assert changed == []


def test_the_command_of_every_trial_leads_to_what_was_trained():
    for trial in json.loads((RESULTS / "cifar10_trials.json").read_text())["trials"]:
        config = configs.override(configs.load(ROOT / trial["config"]), trial["overrides"])
        assert configs.config_hash(config) == trial["config_hash"], trial["name"]
        assert (config.epochs, config.seed) == (trial["epochs"], trial["seed"]), trial["name"]
        for clusters, heads in re.findall(r"\[(\d+) x (\d+)\]", " ".join(trial["rows"])):
            assert config.model.num_clusters == (int(clusters),) * int(heads), trial["name"]
        assert trial["command"].split()[3:] == [
            f"--config={trial['config']}",
            f"--workdir=runs/{trial['name']}",
            *(word for text in trial["overrides"] for word in ("--set", text)),
        ]


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


def test_the_authors_algorithm_is_reproduced_within_two_points_and_the_notes_say_so():
    trials = json.loads((RESULTS / "cifar10_trials.json").read_text())["trials"]
    shown = {
        "[128 x 1]": "authors' algorithm [128 x 1]",
        "[128 x 10]": "authors' algorithm [128 x 10]",
        "K-means [128 x 1]": "K-means in place of Sinkhorn [128 x 1]",
        "random weights": "random weights",
        "supervised": "supervised, same network and epochs",
    }
    notes = (ROOT / "BUILD_NOTES.md").read_text()
    for title, row in shown.items():
        (line,) = re.findall(rf"^\| {re.escape(title)} \|(.*)\|$", notes, re.MULTILINE)
        cells = [cell.strip() for cell in line.split("|")]
        found = [trial for trial in trials if row in trial["rows"]]
        for measure, theirs, ours in zip(("knn", "linear", "nmi"), cells[::2], cells[1::2], strict=True):
            if not ours:
                continue
            mean = sum(trial[measure] for trial in found) / len(found)
            assert ours == (f"{mean:.3f}" if measure == "nmi" else f"{100 * mean:.1f}"), (title, measure)
            low, high = min(map(float, theirs.split("-"))), max(map(float, theirs.split("-")))
            assert low - 2 <= float(ours) <= high + 2, (title, measure)
