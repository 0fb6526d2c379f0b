"""The model card of a run folder."""

import hashlib
import json
import shutil

import pytest

from selabel_tf.evaluation import results
from selabel_tf.training import card
from selabel_tf.training.run_log import read_records
from selabel_tf.training.trained_run import load_run


@pytest.fixture
def folder(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


def test_the_card_tells_what_the_run_folder_holds(folder):
    results.save(
        folder,
        "knn",
        tool="knn",
        model={"epoch": 3},
        data={},
        settings={"k": 5},
        rows=[{"layer": "pool|1", "accuracy": 0.9711}, {"layer": "conv", "top5": 0.5}],
    )
    run = load_run(folder)
    path = card.write(run)
    assert path == folder / "MODEL_CARD.md"
    text = path.read_text()
    last = [r for r in read_records(folder / "metrics.jsonl") if r["kind"] == "labels"][-2:]
    measured = json.loads((folder / "results.json").read_text())["tables"][0]
    for line in (
        "| trained | 3 of 3 epochs, 9 steps |",
        "| images | 60 |",
        f"| fingerprint | {run.training_set.fingerprint} |",
        "| model.num\\_clusters | 5, 7 |",
        "| optimizer.learning\\_rate | 0.05 |",
        f"| config hash | {run.checkpoint.facts['config_hash']} |",
        "| label passes | 3 |",
        "| solves that converged | 6 of 6 |",
        f"| last: share of labels changed | {(last[0]['changed'] + last[1]['changed']) / 2:.3f}, mean of 2 heads |",
        f"| last: NMI to the true classes | {(last[0]['nmi'] + last[1]['nmi']) / 2:.3f}, mean of 2 heads |",
        f"| {measured['rows'][0][0]} | 7 | {measured['rows'][0][2]:.3f} |",
        "| layer | accuracy | top5 |",
        "| pool\\|1 | 0.971 | \\- |",
        "Measured by knn at epoch 3",
        "| size | 16 x 16, 1 channel |",
        hashlib.sha256((run.checkpoint.path / "state.npz").read_bytes()).hexdigest(),
        hashlib.sha256((folder / "backbone.keras").read_bytes()).hexdigest(),
    ):
        assert line in text, line


def test_the_card_names_no_place_on_the_machine_that_wrote_it(folder):
    assert str(folder.parent) not in card.write(load_run(folder)).read_text()


def test_an_unfinished_run_has_a_card_of_its_last_checkpoint(folder):
    (folder / "backbone.keras").unlink()
    (folder / "results.json").unlink()
    with (folder / "metrics.jsonl").open("a") as file:  # a label pass that no checkpoint knows
        file.write(json.dumps({"kind": "labels", "step": 9, "label_pass": 99, "head": 0}) + "\n")
    text = card.write(load_run(folder), folder / "other.md").read_text()
    assert "| label passes | 3 |" in text
    assert "not written yet: the run is not finished" in text
    assert "Nothing was measured" in text


def test_a_damaged_results_file_is_named(folder):
    (folder / "results.json").write_text('{"facts": {}}')
    with pytest.raises(ValueError, match=r"results\.json does not hold the results.json of a run as"):
        card.write(load_run(folder))


def test_the_words_are_those_of_the_method(folder):
    run = load_run(folder)
    assert "training has not seen them" in card.write(run).read_text()
    assert "by SeLa" in card.describe(run).method
    for labeller, words in card.METHODS.items():
        assert set(words) == {"method", "classes", "limits"}, labeller
    assert "has seen the true classes" in card.METHODS["given"]["classes"]
    assert "K-means" in card.METHODS["kmeans"]["method"]


def test_heads_in_turn_are_each_taken_at_their_own_last_pass():
    records = [
        {"kind": "epoch", "step": 0},
        {"kind": "labels", "label_pass": 0, "head": 0, "changed": 0.9, "converged": False, "nmi": None},
        {"kind": "labels", "label_pass": 1, "head": 1, "changed": 0.5, "converged": True, "nmi": None},
        {"kind": "labels", "label_pass": 2, "head": 0, "changed": 0.1, "converged": True, "nmi": None},
    ]
    assert card._label_passes(records) == {
        "label passes": 3,
        "solves that converged": "2 of 3",
        "last: converged": "2 of 2 heads",
        "last: share of labels changed": "0.300, mean of 2 heads",
    }
    assert card._label_passes([])["label passes"].startswith("none: the labels are those")
    assert (card._tuple((20,) * 10), card._tuple((5, 7)), card._tuple(())) == ("20 x 10", "5, 7", "")
