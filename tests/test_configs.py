"""Every experiment of configs/ loads, holds the recipe's numbers, and tells how to run it."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from selabel_tf import config as cfg
from selabel_tf.training.assembly import learning_rate

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem != "__init__")

# The paper's numbers, and its authors' code where the paper is silent.
SMALL_IMAGES = {
    "augment.policy": "crop_jitter_cifar",
    "augment.size": 224,
    "augment.mean": (0.4914, 0.4822, 0.4465),
    "augment.std": (0.2023, 0.1994, 0.2010),
    "model.backbone": "alexnet",
    "label.lambda_": 25.0,
    "label.num_relabels": 400,
    "label.schedule": "linear",
    "label.heads": "in_turn",
    "label.batch_norm": "training",
    "optimizer.learning_rate": 0.03,
    "optimizer.momentum": 0.9,
    "optimizer.l2": 5e-4,
    "optimizer.drop_epochs": (240, 320),
    "optimizer.drop_factor": 0.1,
    "evaluation.knn_k": 50,
    "evaluation.knn_sigma": 0.1,
    "epochs": 400,
    "batch_size": 128,
}
IMAGENET = {
    "data.name": "imagenet2012",
    "data.split": "train",
    "data.test_split": "validation",
    "augment.policy": "crop_jitter",
    "augment.size": 224,
    "augment.mean": (0.485, 0.456, 0.406),
    "augment.std": (0.229, 0.224, 0.225),
    "model.num_clusters": (3000,) * 10,
    "label.lambda_": 25.0,
    "label.num_relabels": 80,
    "label.schedule": "quadratic",
    "label.heads": "all",
    "label.batch_norm": "training",
    "optimizer.learning_rate": 0.05,
    "optimizer.momentum": 0.9,
    "optimizer.l2": 1e-5,
    "optimizer.drop_epochs": (150, 300, 350),
    "optimizer.drop_factor": 0.1,
    "epochs": 400,
    "batch_size": 256,
}
CPU = {
    "data.name": "cifar10",
    "data.split": "train",
    "data.examples_per_class": 2000,
    "augment.policy": "cifar_cpu",
    "augment.mean": (0.4914, 0.4822, 0.4465),
    "augment.std": (0.2023, 0.1994, 0.2010),
    "model.backbone": "resnet18_cifar",
    "model.width": 16,
    "model.num_clusters": (128,) * 10,
    "data.imbalance": "none",
    "label.labeller": "sinkhorn",
    "label.lambda_": 10.0,
    "label.num_relabels": 16,
    "label.schedule": "linear",
    "label.heads": "all",
    "label.views": 1,
    "label.batch_norm": "training",
    "optimizer.learning_rate": 0.1,
    "optimizer.momentum": 0.9,
    "optimizer.l2": 5e-4,
    "optimizer.drop_epochs": (10, 14),
    "optimizer.drop_factor": 0.1,
    "epochs": 16,
    "batch_size": 128,
}
BEST = {  # of our trials
    **CPU,
    "augment.small_crops": 2,
    "augment.small_size": 16,
    "model.num_clusters": (128,),
    "model.projection": (256, 128),
    "model.temperature": 0.1,
    "label.num_relabels": 48,
    "optimizer.learning_rate": 0.05,
    "optimizer.l2": 1e-3,
    "optimizer.schedule": "cosine",
    "optimizer.drop_epochs": (),
    "batch_size": 64,
}
RECIPES = {
    "cifar10": {**SMALL_IMAGES, "data.name": "cifar10", "model.num_clusters": (128,) * 10},
    "cifar100": {**SMALL_IMAGES, "data.name": "cifar100", "model.num_clusters": (512,) * 10},
    "svhn": {**SMALL_IMAGES, "data.name": "svhn_cropped", "model.num_clusters": (128,)},
    "imagenet_alexnet": {**IMAGENET, "model.backbone": "alexnet"},
    "imagenet_resnet50": {**IMAGENET, "model.backbone": "resnet50v2"},
    "cifar10_cpu_faithful": CPU,
    "cifar10_cpu": BEST,
    "cifar10_cpu_full": {
        **BEST,
        "data.examples_per_class": 0,
        "model.num_clusters": (1000,),
        "label.num_relabels": 72,
        "optimizer.l2": 5e-4,
        "epochs": 24,
    },
    "cifar10_cpu_kmeans": {**BEST, "label.labeller": "kmeans"},
    "cifar10_cpu_supervised": {**BEST, "model.num_clusters": (10,), "label.labeller": "given"},
    "cifar10_cpu_opt0": {**BEST, "label.num_relabels": 0},
    "cifar10_cpu_random_weights": {**BEST, "epochs": 0},
    "cifar10_cpu_rot": {**CPU, "model.objectives": ("labels", "rotation")},
    "cifar10_cpu_rotnet": {
        **CPU,
        "model.num_clusters": (128,),
        "model.objectives": ("rotation",),
        "label.num_relabels": 0,
    },
}
RETRAINED = {
    "model.num_clusters": (),
    "label.labeller": "given",
    "model.objectives": ("labels",),
    "augment.more": "none",
}
ROTATED = {**RETRAINED, "model.objectives": ("labels", "rotation")}
TRANSFER = {  # the paper's
    **IMAGENET,
    "model.backbone": "alexnet",
    "optimizer.drop_epochs": (30, 60, 80),
    "epochs": 90,
    "batch_size": 64,
}
SHORTER = {**CPU, "optimizer.drop_epochs": (5, 7), "epochs": 8}  # labels that stand still are learnt in half the time
for before, base in (("cifar10_cpu", SHORTER), ("imagenet_alexnet", TRANSFER)):
    RECIPES[f"{before}_retrain"] = {**base, **RETRAINED}
    RECIPES[f"{before}_retrain_rot"] = {**base, **ROTATED}
    RECIPES[f"{before}_retrain_rot_moreaug"] = {**base, **ROTATED, "augment.more": "one_of"}


def field(config, path):
    for name in path.split("."):
        config = getattr(config, name)
    return config


@pytest.mark.parametrize("name", NAMES)
def test_a_config_is_named_after_its_file_and_survives_json(name):
    config = cfg.load(CONFIGS / f"{name}.py")
    assert config.name == name
    assert cfg.from_json(cfg.to_json(config)) == config


@pytest.mark.parametrize("name", NAMES)
def test_a_config_tells_in_its_docstring_the_command_that_runs_it(name):
    docstring = ast.get_docstring(ast.parse((CONFIGS / f"{name}.py").read_text()))
    tool = "retrain" if "retrain" in name else "train"
    command = f"python -m tools.{tool} --config=configs/{name}.py --workdir=runs/{name}"
    commands = [line.strip() for line in re.sub(r" \\\n +", " ", docstring).splitlines()]
    if tool == "train":
        assert command in commands
    else:
        assert any(line.startswith(f"{command} --labels=runs/") for line in commands)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_has_the_values_of_the_paper_or_its_code(name):
    config = cfg.load(CONFIGS / f"{name}.py")
    assert {path: field(config, path) for path in RECIPES[name]} == RECIPES[name]


def test_digits_needs_no_download_and_relabels_once_per_epoch():
    config = cfg.load(CONFIGS / "digits.py")
    assert config.data == cfg.Data(source="digits")
    assert config.augment.policy == "digits"
    assert (config.label.schedule, config.label.num_relabels) == ("linear", config.epochs)


@pytest.mark.parametrize("name", sorted({name for name in NAMES if "cifar10_cpu_" in name} - {"cifar10_cpu_faithful"}))
def test_a_baseline_differs_from_the_method_in_what_it_says_only(name):
    method = "cifar10_cpu_faithful" if "rot" in name or "retrain" in name else "cifar10_cpu"
    changed = cfg.differences(cfg.load(CONFIGS / f"{method}.py"), cfg.load(CONFIGS / f"{name}.py"))
    allowed = {"name", "model.num_clusters", "label.labeller", "label.num_relabels", "epochs"}
    allowed |= {"model.objectives", "augment.more"}
    allowed |= {"optimizer.drop_epochs"} if "retrain" in name else set()
    allowed |= {"data.examples_per_class", "evaluation.knn_every", "optimizer.l2"} if "full" in name else set()
    assert {line.partition(":")[0] for line in changed} <= allowed


def test_places_is_a_probe_target_of_the_networks_for_imagenet():
    docstring = ast.get_docstring(ast.parse((CONFIGS / "imagenet_alexnet_retrain.py").read_text()))
    lines = re.sub(r" \\\n +", " ", docstring).splitlines()
    commands = [line.split() for line in lines if "tools.linear_probe" in line]
    here, places = (
        [word for word, before in zip(line[1:], line, strict=False) if before == "--set"] for line in commands
    )
    assert here == [] and places == ["data.name=places365_small"]
    for name in ("retrain", "retrain_rot", "retrain_rot_moreaug"):
        config = cfg.override(cfg.load(CONFIGS / f"imagenet_alexnet_{name}.py"), places)
        assert (config.data.name, config.data.split, config.data.test_split) == (
            "places365_small",
            "train",
            "validation",  # its test split keeps its classes secret
        )


def test_label_transfer_takes_the_learning_rate_down_as_the_paper_says():
    config = cfg.load(CONFIGS / "imagenet_alexnet_retrain.py")
    at_epoch = learning_rate(config.optimizer, config.epochs)
    found = [at_epoch(epoch) for epoch in (0, 29, 30, 59, 60, 79, 80, 89)]
    np.testing.assert_allclose(found, [0.05, 0.05, 0.005, 0.005, 0.0005, 0.0005, 0.00005, 0.00005])


def test_the_documented_setting_of_an_uneven_set_is_understood():
    config = cfg.override(cfg.load(CONFIGS / "cifar10_cpu_kmeans.py"), ["data.imbalance=heavy"])
    assert (config.data.imbalance, config.label.labeller) == ("heavy", "kmeans")
