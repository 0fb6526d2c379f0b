"""The real program, in processes of its own."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def compare(python):
    """(exit code, standard output, standard error) of tools.compare."""

    def program(*arguments, check=True):
        done = python("-m", "tools.compare", *arguments)
        if check:
            assert done.returncode == 0, done.stderr
        return done.returncode, done.stdout, done.stderr

    return program


def test_one_table_of_runs_and_configs_with_the_papers_figures_marked(compare, finished_run):
    _, output, errors = compare(finished_run, "configs/cifar10.py")
    lines = output.splitlines()
    assert lines[0] == "SeLa and its baselines, in percent"
    header = lines[2].split()
    assert header[:5] == ["method", "images", "state", "kNN", "(paper)"]
    ours = next(line for line in lines if line.startswith(str(finished_run)) and "SeLa [5, 7]" in line)
    assert "3 epochs" in ours
    assert any(line.startswith("configs/cifar10.py") and "not run" in line and "77.6" in line for line in lines)
    assert any(line.startswith("(paper)") and "DeepCluster" in line and "62.3" in line for line in lines)
    assert any("marked (paper) are the paper's figures" in line for line in lines)
    last = lines[lines.index("A dash was not measured. To measure it:") + 1 :]
    assert last == [
        f"  python -m tools.linear_probe --workdir={finished_run}",
        f"  python -m tools.clusters --workdir={finished_run}",
        "  python -m tools.train --config=configs/cifar10.py --workdir=runs/cifar10",
        "  python -m tools.knn --workdir=runs/cifar10",
        "  python -m tools.linear_probe --workdir=runs/cifar10",
        "  python -m tools.clusters --workdir=runs/cifar10",
    ]
    assert errors == ""


def test_json_goes_to_a_file_with_the_place_of_each_figure_of_the_paper(compare, tmp_path):
    path = tmp_path / "table.json"
    _, output, _ = compare("--config=imagenet_alexnet", "--layers=all", "--format=json", f"--output={path}")
    assert output == f"The table is in {path}.\n"
    content = json.loads(path.read_text())
    assert content["unit"] == "percent"
    row = content["rows"][0]
    assert (row["name"], row["kind"], row["ours"]) == ("configs/imagenet_alexnet.py", "not run", {})
    figure = {"table": "9", "row": "SeLa [3k x 10]*", "metric": "imagenet c4 10-crop", "value": 47.1}
    assert row["paper"]["linear conv4 10-crop"] == figure
    assert content["missing"][0] == (
        "python -m tools.train --config=configs/imagenet_alexnet.py --workdir=runs/imagenet_alexnet"
    )


def test_a_config_that_waits_for_labels_is_run_by_retraining(compare):
    _, output, _ = compare("imagenet_alexnet_retrain_rot")
    lines = output.splitlines()
    assert any("SeLa- + Rot" in line and "not run" in line for line in lines)
    assert any(line.startswith("(paper)") and "SeLa- [3000 x 10] + Rot, labels of ResNet-50" in line for line in lines)
    place = "--config=configs/imagenet_alexnet_retrain_rot.py --workdir=runs/imagenet_alexnet_retrain_rot"
    assert f"  python -m tools.retrain {place} --labels=..." in lines


def test_markdown_has_the_same_table(compare):
    _, output, _ = compare("digits", "--format=markdown")
    lines = output.splitlines()
    assert lines[0] == "**SeLa and its baselines, in percent**"
    assert lines[2].startswith("|  | method | images | state | kNN |")
    kept = json.loads((ROOT / "configs" / "results" / "digits.json").read_text())
    accuracy = {row["what"]: row["accuracy"] for row in kept["numbers"]["knn"]}["learned features"]
    assert lines[4].startswith(f"| configs/digits.py | SeLa [20 x 10] | digits | 50 epochs | {100 * accuracy:.1f} |")


def test_a_mistake_is_one_message_without_a_traceback(compare):
    code, _, errors = compare(check=False)
    assert code == 1
    assert "Give run folders or configs" in errors
    assert "Traceback" not in errors
