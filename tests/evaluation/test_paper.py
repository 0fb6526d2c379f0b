"""The paper's tables as data."""

import json
from dataclasses import replace

import pytest

from selabel_tf.evaluation import paper

CIFAR10 = paper.Setting(dataset="cifar10", judged="cifar10", backbone="alexnet", num_clusters="128x10")
IMAGENET = paper.Setting(dataset="imagenet2012", judged="imagenet2012", backbone="alexnet", num_clusters="3000x1")

# Read from the paper once more, by hand, one from each table or more.
PRINTED = [
    ("1", "SeLa [3k x 1], 0 optimisations", "c4", 18.3),
    ("1", "SeLa [3k x 1], 80 optimisations", "c5", 40.9),
    ("2", "SeLa [1k x 1]", "c3", 40.1),
    ("2", "SeLa [10k x 1]", "c4", 43.8),
    ("3", "SeLa [3k x 10] AlexNet", "top1", 46.7),
    ("3", "SeLa [3k x 1] ResNet-50", "top1", 51.8),
    ("4", "SeLa [3k x 1] AlexNet (small)", "top1", 41.3),
    ("5", "SeLa [3k x 10] ResNet-50 to AlexNet", "target top1", 48.4),
    ("5", "SeLa [3k x 10] AlexNet to AlexNet", "target top1", 46.5),
    ("6", "SL", "knn cifar10", 77.6),
    ("6", "SL", "linear cifar100", 57.4),
    ("6", "DeepCluster", "knn svhn", 84.9),
    ("6", "Supervised", "linear svhn", 96.1),
    ("7", "SeLa* [3k x 10]-+Rot", "detection all", 59.2),
    ("7", "ImageNet labels", "segmentation all", 48.0),
    ("8", "full, ours (SK) [128 x 1]", "knn cifar10", 72.9),
    ("8", "heavy imbalance, ours (K-means) [128 x 1]", "linear cifar100", 44.3),
    ("8", "light imbalance, Supervised", "knn cifar100", 24.0),
    ("9", "SeLa [3k x 10]*", "imagenet c4 1-crop", 41.4),
    ("9", "SeLa [3k x 10]*", "imagenet c4 10-crop", 47.1),
    ("9", "SeLa [3k x 10]-+Rot*+more aug.", "places c5 10-crop", 39.9),
    ("9", "SeLa [3k x 10]-+Rot*", "places c1 1-crop", 24.0),
    ("10", "SeLa [3k x 10] ResNet-50", "top1", 61.5),
    ("10", "SeLa [3k x 10] ResNet-50", "top5", 84.0),
    ("A.1", "SeLa [3k x 10] ResNet-50", "ami", 26.4),
    ("A.1", "SeLa [10k x 1] AlexNet", "nmi", 66.4),
]


@pytest.mark.parametrize("table, row, metric, value", PRINTED)
def test_figures_are_as_printed(table, row, metric, value):
    assert paper.figures(table, row, metric) == (paper.Figure(table, row, metric, value),)


def test_every_table_is_there_with_its_title():
    assert list(paper.titles()) == [*map(str, range(1, 11)), "A.1"]
    assert "weighted kNN" in paper.titles()["6"]


def test_every_row_has_a_value_or_a_dash_for_each_metric():
    for block in json.loads(paper.FILE.read_text())["tables"]:
        for row, values in block["rows"].items():
            assert len(values) == len(block["metrics"]), (block["table"], row)
            assert all(value is None or 0 < value < 100 for value in values), (block["table"], row)


def test_figures_are_found_by_any_part_of_their_place():
    assert {figure.row for figure in paper.figures("5")} == {
        "SeLa [3k x 10] AlexNet to AlexNet",
        "SeLa [3k x 1] ResNet-50 to AlexNet",
        "SeLa [3k x 10] ResNet-50 to AlexNet",
    }
    assert {figure.table for figure in paper.figures(metric="knn cifar10")} == {"6", "8"}
    assert len(paper.figures("9", "SeLa [3k x 10]*")) == 20  # five layers, two sets of images, 1 and 10 crops


def test_what_the_paper_leaves_out_has_no_figure():
    assert [figure.metric for figure in paper.figures("7", "Random")] == ["classification all", "detection all"]


@pytest.mark.parametrize(
    "place, complaint",
    [
        ({"table": "11"}, r"no table '11' here. It has: 1; 2; 3;"),
        ({"table": "5", "row": "SL"}, r"no row 'SL' here. It has: SeLa \[3k x 10\] AlexNet to AlexNet;"),
        ({"table": "6", "row": "SL", "metric": "top1"}, r"no metric 'top1' here. It has: linear cifar10;"),
    ],
)
def test_a_place_that_is_not_in_the_paper_is_refused_with_those_that_are(place, complaint):
    with pytest.raises(ValueError, match=complaint):
        paper.figures(**place)


def test_every_experiment_leads_to_figures_of_its_own_images():
    for experiment in paper.experiments():
        assert experiment.figures
        for measure, figure in experiment.figures.items():
            if measure in ("knn", "linear conv5") and figure.table in ("6", "8"):
                assert figure.metric.split()[0] == measure.split()[0]
                assert experiment.setting["judged"].startswith(figure.metric.split()[1])
            if figure.table == "9":
                assert ("10-crop" in measure) == ("10-crop" in figure.metric)
                assert measure.split()[1] == figure.metric.split()[1].replace("c", "conv")


def test_no_two_experiments_are_of_the_same_setting():
    settings = [tuple(sorted(experiment.setting.items())) for experiment in paper.experiments()]
    assert len(set(settings)) == len(settings)


@pytest.mark.parametrize(
    "setting, measure, value",
    [
        (CIFAR10, "knn", 77.6),
        (replace(CIFAR10, num_clusters="128x1"), "linear conv5", 79.8),
        (replace(CIFAR10, num_clusters="128x1", labeller="kmeans"), "knn", 64.7),
        (replace(CIFAR10, num_clusters="128x1", imbalance="heavy"), "knn", 67.6),
        (replace(CIFAR10, num_clusters="128x1", judged="cifar100"), "knn", 28.9),
        (replace(CIFAR10, num_clusters="10x1", labeller="given"), "knn", 91.9),
        (replace(CIFAR10, num_clusters="10x1", labeller="given", imbalance="light"), "knn", 92.0),
        (IMAGENET, "test nmi", 59.1),
        (replace(IMAGENET, num_relabels=0), "linear conv4, crops not stated", 18.3),
        (replace(IMAGENET, num_clusters="3000x10"), "linear conv4 10-crop", 47.1),
        (replace(IMAGENET, backbone="resnet50v2", num_clusters="3000x10"), "linear pool top5", 84.0),
        (replace(IMAGENET, labeller="random"), "linear conv3", 17.4),
        (replace(IMAGENET, num_clusters="3000x10", judged="voc/2007"), "finetune fc6 mAP", 73.1),
        (replace(IMAGENET, num_clusters="3000x10", judged="voc/2007"), "finetune all mAP", 75.3),
    ],
)
def test_the_papers_figure_stands_beside_its_own_setting(setting, measure, value):
    assert paper.beside(setting).figures[measure].value == value


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "digits", "judged": "digits"},
        {"dataset": "folder cifar10", "judged": "folder cifar10"},
        {"backbone": "resnet18_cifar"},
        {"num_clusters": "128x9"},
        {"labeller": "kmeans"},
        {"imbalance": "light"},
        {"num_relabels": 0},
        {"examples": "2000 per class"},
        {"judged": "svhn_cropped"},
    ],
)
def test_no_figure_stands_beside_any_other_setting(change):
    assert paper.beside(CIFAR10) is not None
    assert paper.beside(replace(CIFAR10, **change)) is None


def test_references_are_the_papers_other_figures_for_the_same_images():
    methods = [experiment.method for experiment in paper.references(CIFAR10)]
    assert methods == ["Supervised", "DeepCluster", "AND", "SeLa [128 x 1]", "SeLa (K-means) [128 x 1]"]
    small = [experiment.method for experiment in paper.references(replace(CIFAR10, backbone="resnet18_cifar"))]
    assert small == ["SeLa [128 x 10]", *methods]
    assert paper.references(replace(CIFAR10, dataset="digits")) == ()


def test_references_have_the_same_backbone_where_the_paper_has_it():
    found = paper.references(replace(IMAGENET, backbone="resnet50v2"))
    assert {experiment.setting["backbone"] for experiment in found} == {"resnet50v2"}


def test_references_of_an_imbalance_are_its_own_and_those_of_the_full_set():
    found = paper.references(replace(CIFAR10, imbalance="light"))
    assert {experiment.setting["imbalance"] for experiment in found} == {"none", "light"}


def test_label_transfer_has_the_papers_rows_as_references_since_a_config_does_not_tell_whose_labels_it_takes():
    retrained = replace(IMAGENET, num_clusters="3000x10", labeller="transfer", objectives="labels + rotation")
    assert paper.beside(retrained) is None
    named = {experiment.method: experiment for experiment in paper.references(retrained)}
    rows = (("SeLa- [3000 x 10] + Rot", 49.7), ("SeLa- [3000 x 10] + Rot + more aug.", 50.0))
    for name, value in rows:
        experiment = named[f"{name}, labels of ResNet-50"]
        assert (experiment.epochs, experiment.figures["linear conv4 10-crop"].value) == (90, value)
    voc = {experiment.method: experiment for experiment in paper.references(replace(retrained, judged="voc/2007"))}
    assert voc["SeLa- [3000 x 10], labels of ResNet-50"].figures["finetune fc6 mAP"].value == 74.4
    assert voc["SeLa- [3000 x 10] + Rot, labels of ResNet-50"].figures["finetune all mAP"].value == 77.2
