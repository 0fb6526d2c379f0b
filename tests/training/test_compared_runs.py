"""Run folders and configs as rows of a comparison."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from selabel_tf import config as configs
from selabel_tf.evaluation import comparison, paper, results
from selabel_tf.training.compared_runs import entries_of, method_of, setting_of

ROOT = Path(__file__).resolve().parents[2]


def save(run, tool, rows, *, epoch=3, own=True, images="digits"):
    name = tool if own else f"{tool}-other"
    data = {"train": {"name": images}, "test": None, "own": own}
    results.save(run, name, tool=tool, model={"epoch": epoch}, data=data, settings={}, rows=rows)


@pytest.fixture
def run(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


def test_a_finished_run_has_what_training_measured_and_its_baselines(finished_run):
    first, *others = entries_of(finished_run)
    numbers = json.loads((finished_run / "results.json").read_text())["numbers"]
    learned = next(row["accuracy"] for row in numbers["knn"] if row["what"] == "learned features")
    assert first.measures["knn"] == learned
    assert first.measures["nmi"] == numbers["clusters"][0]["nmi"]
    assert (first.method, first.images, first.state, first.kind) == (
        "SeLa [5, 7]",
        "digits, 6 per class",
        "3 epochs",
        "run",
    )
    assert {"raw pixels", "random weights (small_conv)"} <= {entry.method for entry in others}
    assert all(entry.kind == "baseline" for entry in others)
    assert "kNN with k=5, sigma=0.1" in first.remarks


def test_a_half_finished_run_says_how_far_it_is(run):
    (run / "results.json").unlink()
    save(run, "knn", [{"features": "flatten", "k": 50, "sigma": 0.1, "top1": 0.25}])
    (entry,) = entries_of(run)
    assert entry.state == "epoch 3 of 3"
    assert entry.measures == {"knn": 0.25}
    shutil.rmtree(run / "checkpoints")
    assert entries_of(run)[0].state == "epoch 0 of 3"


def test_what_the_tools_measured_comes_before_the_summary_of_training(run):
    save(run, "knn", [{"features": "flatten", "k": 50, "sigma": 0.1, "top1": 0.25}])
    save(run, "clusters", [{"labelling": "labels", "head": "mean", "accuracy": 0.5}])
    save(run, "linear_probe", [{"layer": "flatten", "features": "random weights", "top1": 0.125}])
    first, *others = entries_of(run)
    assert (first.measures["knn"], first.measures["accuracy"]) == (0.25, 0.5)
    assert first.remarks == ("kNN with k=50, sigma=0.1 on flatten",)
    random = next(entry for entry in others if entry.method == "random weights (small_conv)")
    assert random.measures["linear flatten"] == 0.125


def test_baselines_stay_where_neighbours_were_sought_in_the_same_way(run):
    def measures():
        return [entry.measures for entry in entries_of(run) if entry.method == "random weights (small_conv)"]

    (before,) = measures()
    row = {"features": "learned", "layer": "flatten", "k": 5, "sigma": 0.1, "top1": 0.25}
    save(run, "knn", [row])
    assert entries_of(run)[0].measures["knn"] == 0.25 and measures() == [before] and "knn" in before
    save(run, "knn", [row | {"k": 50}])  # training's figure of random weights is of 5 neighbours
    assert measures() == []
    save(run, "knn", [row | {"k": 50}, row | {"features": "random weights", "k": 50, "top1": 0.125}])
    assert measures() == [{"knn": 0.125}]


def test_chosen_layers_do_not_stand_for_the_network(run):
    before = entries_of(run)
    row = {"features": "learned", "layer": "conv1", "k": 50, "sigma": 0.1, "top1": 0.25}
    data = {"own": True, "train": {"name": "digits"}}
    facts = {"tool": "knn", "model": {"epoch": 3}, "data": data}
    results.save(run, "knn_conv1", settings={"layers": ["conv1"]}, rows=[row], **facts)
    assert entries_of(run) == before
    results.save(run, "knn", settings={"layers": [], "pca": 7}, rows=[row], **facts)
    assert entries_of(run)[0].remarks == ("kNN with k=50, sigma=0.1, 7 principal components",)


def test_figures_of_an_earlier_checkpoint_are_told(run):
    save(run, "clusters", [{"labelling": "labels", "head": "mean", "accuracy": 0.5}], epoch=2)
    assert "clusters was measured at epoch 2, the run is at 3: measure again" in entries_of(run)[0].remarks


def test_other_images_are_a_row_of_their_own(run):
    rows = [{"features": "flatten", "k": 50, "sigma": 0.1, "top1": 0.25}]
    save(run, "knn", rows, own=False, images="cifar100/train", epoch=2)
    entry = entries_of(run)[-1]
    assert (entry.kind, entry.images, entry.setting.judged) == ("elsewhere", "cifar100/train", "cifar100")
    assert entry.measures == {"knn": 0.25}
    assert entry.remarks[-1] == "on cifar100/train: knn was measured at epoch 2, the run is at 3: measure again"
    save(run, "knn", rows, own=False, images="cifar100")  # a folder of that name is not the TFDS set
    assert entries_of(run)[-1].setting.judged == "folder cifar100"
    save(run, "knn", rows, own=False, images="voc/2007/train+validation")
    assert entries_of(run)[-1].setting.judged == "voc/2007"


def test_two_sets_of_the_same_name_are_two_rows(run):
    facts = {"tool": "knn", "model": {"epoch": 3}, "settings": {}}
    for name, digits, accuracy in (("knn-set1", "aaaaaaaa", 1.0), ("knn-set1-bbbbbbbb", "bbbbbbbb", 0.25)):
        data = {"own": False, "train": {"name": "set1", "fingerprint": digits * 8}}
        row = {"features": "learned", "k": 50, "sigma": 0.1, "top1": accuracy}
        results.save(run, name, data=data, rows=[row], **facts)
    found = {entry.images: entry.measures for entry in entries_of(run) if entry.kind == "elsewhere"}
    assert found == {"set1 (aaaaaaaa)": {"knn": 1.0}, "set1 (bbbbbbbb)": {"knn": 0.25}}


def test_a_run_without_classes_is_not_asked_for_what_needs_them(run):
    log = run / "metrics.jsonl"
    assert entries_of(run)[0].has_classes
    records = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(f"{json.dumps(r | {'nmi': None} if r['kind'] == 'labels' else r)}\n" for r in records))
    (run / "results.json").unlink()
    (entry,) = entries_of(run)
    assert not entry.has_classes
    assert comparison.compare([entry]).missing == ()
    log.write_text("no record\n")
    assert entries_of(run)[0].has_classes  # there is no telling, and nothing else is taken from the log


def test_a_config_that_was_not_run_is_a_row_without_figures(monkeypatch):
    monkeypatch.chdir(ROOT)
    (entry,) = entries_of("cifar10")
    assert (entry.name, entry.kind, entry.state, entry.measures) == ("configs/cifar10.py", "not run", "not run", {})
    assert paper.beside(entry.setting).figures["knn"].value == 77.6


def test_a_config_has_the_results_kept_beside_it_and_not_those_of_another(tmp_path):
    shutil.copy(ROOT / "configs" / "digits.py", tmp_path / "digits.py")
    kept = tmp_path / "results"
    kept.mkdir()
    numbers = {"knn": [{"what": "learned features", "accuracy": 0.5}]}
    (kept / "digits_small.json").write_text(json.dumps({"numbers": numbers}))
    assert entries_of(tmp_path / "digits.py")[0].kind == "not run"
    (kept / "digits.json").write_text(json.dumps({"numbers": numbers, "config_hash": "0"}))
    found = results.save(
        tmp_path, "x", tool="clusters", model={}, data={}, settings={}, rows=[{"head": "mean", "accuracy": 0.25}]
    )
    found.rename(kept / "digits-clusters.json")
    (entry,) = entries_of(tmp_path / "digits.py")
    assert entry.kind == "kept"
    assert entry.measures == {"knn": 0.5, "test accuracy": 0.25}
    assert entry.remarks[0].endswith("digits.json is of an earlier version of this config")


@pytest.mark.parametrize(
    "name, num_clusters",
    [("cifar10", "128x10"), ("cifar100", "512x10"), ("svhn", "128x1"), ("imagenet_alexnet", "3000x10")],
)
def test_the_papers_experiments_are_those_of_its_configs(name, num_clusters):
    setting = setting_of(configs.load(ROOT / "configs" / f"{name}.py"))
    assert setting.num_clusters == num_clusters
    assert paper.beside(setting) is not None


@pytest.mark.parametrize(
    "change",
    ["data.examples_per_class=2000", "data.split=train[:50%]", "model.num_clusters=128x9", "label.num_relabels=0"],
)
def test_a_changed_config_is_no_longer_the_papers(change):
    config = configs.load(ROOT / "configs" / "cifar10.py")
    assert paper.beside(setting_of(configs.override(config, [change]))) is None


def test_a_width_is_part_of_the_backbone_and_a_folder_is_no_tfds_set():
    config = configs.load(ROOT / "configs" / "cifar10_cpu.py")
    assert setting_of(config).backbone == "resnet18_cifar of width 16"
    folder = replace(config, data=configs.Data(source="folder", path="images/cifar10"))
    assert setting_of(folder).dataset == "folder cifar10"


def test_labeller_and_imbalance_of_a_config_are_part_of_its_setting():
    @dataclass(frozen=True)
    class Wider:
        """A section with fields that an older config does not have."""

        section: object
        labeller: str = "kmeans"
        imbalance: str = "light"

        def __getattr__(self, name):
            return getattr(self.section, name)

    config = configs.load(ROOT / "configs" / "svhn.py")
    data, label = Wider(config.data), Wider(config.label)
    wider = type("Config", (), {"data": data, "label": label, "model": config.model, "augment": config.augment})
    setting = setting_of(wider)
    assert (setting.labeller, setting.imbalance) == ("kmeans", "light")
    assert method_of(setting) == "SeLa (K-means) [128 x 1]"


def test_methods_are_named_as_in_the_paper():
    setting = setting_of(configs.load(ROOT / "configs" / "cifar10.py"))
    assert method_of(setting) == "SeLa [128 x 10]"
    assert method_of(replace(setting, num_relabels=0)) == "SeLa [128 x 10], 0 label optimisations"
    assert method_of(replace(setting, labeller="given")) == "Supervised"
    transferred = replace(setting, labeller="transfer", num_relabels=0)
    assert method_of(transferred) == "SeLa- [128 x 10]"
    rotated = replace(transferred, objectives="labels + rotation")
    assert method_of(rotated) == "SeLa- [128 x 10] + Rot"
    assert method_of(replace(rotated, more="one_of")) == "SeLa- [128 x 10] + Rot + more aug."
    assert method_of(replace(setting, objectives="rotation", num_relabels=0)) == "RotNet"
    assert method_of(setting_of(configs.load(ROOT / "configs" / "cifar10_cpu_retrain_rot.py"))) == "SeLa- + Rot"


def test_what_is_neither_a_run_nor_a_config_is_refused(tmp_path, run):
    with pytest.raises(ValueError, match="holds no run: it has no config"):
        entries_of(tmp_path)
    with pytest.raises(ValueError, match="neither a run folder nor a config file"):
        entries_of(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="No config file configs/nothing"):
        entries_of("nothing")
    (run / "results.json").write_text("{")
    with pytest.raises(ValueError, match=r"json is not a result of ours: it is not JSON"):
        entries_of(run)
    (run / "results.json").write_text("[]")
    with pytest.raises(ValueError, match="holds a list, expected an object"):
        entries_of(run)
