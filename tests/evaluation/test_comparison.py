"""Runs side by side."""

from dataclasses import replace

import pytest

from selabel_tf.evaluation import comparison, paper
from selabel_tf.evaluation.comparison import Entry

CIFAR10 = paper.Setting(dataset="cifar10", judged="cifar10", backbone="alexnet", num_clusters="128x10")
ENTRY = Entry("runs/a", "SeLa [128 x 10]", "cifar10", "400 epochs", CIFAR10, 400, {"knn": 0.7512})
DIGITS = replace(ENTRY, name="runs/d", images="digits", setting=replace(CIFAR10, dataset="digits", judged="digits"))

NUMBERS = {
    "knn": [
        {"what": "raw pixels", "accuracy": 0.3},
        {"what": "random weights", "accuracy": 0.4},
        {"what": "learned features", "accuracy": 0.5},
    ],
    "clusters": [
        {"what": "self-labels, mean of 3 heads", "clusters": 7, "nmi": 0.1, "ami": 0.2, "ari": 0.3},
        {"what": "K-means on raw pixels", "clusters": 10, "nmi": 0.4, "ami": 0.5, "ari": 0.6},
        {"what": "K-means on learned features", "clusters": 10, "nmi": 0.7, "ami": 0.8, "ari": 0.9},
    ],
}


def result(tool, rows, settings=None):
    return {"tool": tool, "rows": rows, "settings": settings}


def cell(found, row, column):
    return found.table.rows[row][found.table.columns.index(column)]


def test_a_summary_gives_measures_and_the_baselines_that_need_no_training():
    measures, baselines, remarks = comparison.of_summary(NUMBERS, 5, 0.1)
    assert measures == {"knn": 0.5, "nmi": 0.1, "ami": 0.2, "ari": 0.3}
    assert baselines == {
        "raw pixels": {"knn": 0.3},
        "random weights": {"knn": 0.4},
        "K-means on raw pixels [10]": {"nmi": 0.4, "ami": 0.5, "ari": 0.6},
    }
    assert remarks == ("kNN with k=5, sigma=0.1",)
    assert comparison.of_summary({}) == ({}, {}, ())


def test_of_many_neighbour_settings_the_papers_is_taken():
    rows = [
        {"features": "flatten", "k": 10, "sigma": 0.1, "top1": 0.9},
        {"features": "flatten", "k": 50, "sigma": 0.1, "top1": 0.6},
        {"features": "flatten", "k": 50, "sigma": 0.5, "top1": 0.8},
        {"features": "random weights", "k": 50, "sigma": 0.1, "top1": 0.2},
    ]
    measures, baselines, remarks = comparison.of_result(result("knn", rows))
    assert (measures, baselines) == ({"knn": 0.6}, {"random weights": {"knn": 0.2}})
    assert remarks == ("kNN with k=50, sigma=0.1 on flatten",)


def test_the_networks_own_features_are_the_last_layer_whatever_else_was_probed():
    own = result("linear_probe", [{"layer": "pool", "top1": 0.55}], {"chosen_layers": []})
    chosen = [{"layer": "pool", "top1": 0.44}, {"layer": "stage1", "top1": 0.3}]
    for order in (1, -1):
        both = [own, result("linear_probe", chosen, {"chosen_layers": ["pool", "stage1"]})][::order]
        measures, *_ = comparison.of_run({}, both)
        assert list(measures.items()) == [("linear stage1", 0.3), ("linear pool", 0.55)]


@pytest.mark.parametrize(
    ("k", "random", "baselines"),
    [
        (5, 0.45, {"raw pixels": 0.3, "random weights": 0.45}),  # the summary's setting: its raw pixels may stay
        (9, 0.45, {"random weights": 0.45}),
        (9, None, {}),
    ],
)
def test_neighbours_measured_in_another_way_drop_the_baselines_of_the_first(k, random, baselines):
    rows = [{"features": "learned", "k": k, "sigma": 0.1, "top1": 0.6}]
    rows += [{"features": "random weights", "k": k, "sigma": 0.1, "top1": random}] if random else []
    measures, others, remarks = comparison.of_run(NUMBERS, [result("knn", rows, {})], 5, 0.1)
    assert measures == {"knn": 0.6, "nmi": 0.1, "ami": 0.2, "ari": 0.3}
    assert {name: values["knn"] for name, values in others.items() if "knn" in values} == baselines
    assert others["K-means on raw pixels [10]"]["nmi"] == 0.4
    assert remarks == (f"kNN with k={k}, sigma=0.1",)


def test_other_neighbour_settings_are_taken_and_named_when_the_papers_was_not_measured():
    measures, _, remarks = comparison.of_result(result("knn", [{"layer": "pool", "k": 3, "sigma": 0.2, "top1": 0.9}]))
    assert measures == {"knn": 0.9}
    assert remarks == ("kNN with k=3, sigma=0.2 on pool",)


def test_probes_are_named_by_layer_and_crops():
    rows = [
        {"layer": "conv4_relu", "top1": 0.1, "top5": 0.2},
        {"layer": "conv5", "crops": 10, "top1": 0.3},
        {"layer": "pool", "features": "random weights", "top1": 0.4},
    ]
    measures, baselines, _ = comparison.of_result(result("linear_probe", rows))
    assert measures == {"linear conv4": 0.1, "linear conv4 top5": 0.2, "linear conv5 10-crop": 0.3}
    assert baselines == {"random weights": {"linear pool": 0.4}}
    assert (
        "linear fc 10-crop"
        in comparison.of_result(result("linear_probe", [{"layer": "fc", "top1": 1}], {"crops": 10}))[0]
    )


def test_clusters_are_those_of_all_heads_of_labels_and_of_unseen_images():
    rows = [
        {"labelling": "labels", "head": "0", "nmi": 0.9},
        {"labelling": "labels", "head": "mean", "nmi": 0.1, "accuracy": 0.2, "purity": 0.3},
        {"labelling": "assigned", "head": "mean", "nmi": 0.4},
        {"labelling": "labels", "head": "0", "other_head": "1", "nmi": 0.8},
    ]
    assert comparison.of_result(result("clusters", rows))[0] == {"nmi": 0.1, "accuracy": 0.2, "test nmi": 0.4}


def test_files_of_other_tools_are_passed_over():
    assert comparison.of_result(result("export", [{"size": 3}])) == ({}, {}, ())


def test_the_papers_figure_stands_beside_ours_in_percent():
    found = comparison.compare([ENTRY])
    columns = found.table.columns
    assert columns[columns.index("kNN") + 1] == "(paper)"
    assert (cell(found, 0, "kNN"), cell(found, 0, "(paper)")) == ("75.1", "77.6")
    assert found.rows[0]["paper"]["knn"] == {"table": "6", "row": "SL", "metric": "knn cifar10", "value": 77.6}
    assert found.rows[0]["ours"] == {"knn": pytest.approx(75.12)}


def test_in_another_setting_the_papers_figures_are_rows_of_their_own():
    other = replace(ENTRY, setting=replace(CIFAR10, backbone="resnet18_cifar"))
    found = comparison.compare([other])
    assert cell(found, 0, "(paper)") is None
    assert found.table.rows[1][:4] == ("(paper)", "SeLa [128 x 10]", "cifar10", "alexnet")
    assert (cell(found, 1, "kNN"), cell(found, 1, "(paper)")) == (None, "77.6")
    assert all(row["kind"] == "paper" and not row["ours"] for row in found.rows[1:])


def test_a_figure_beside_a_run_is_no_row_as_well():
    one_head = replace(ENTRY, setting=replace(CIFAR10, num_clusters="128x1"))
    methods = [row["method"] for row in comparison.compare([ENTRY, one_head]).rows if row["kind"] == "paper"]
    assert methods == ["Supervised", "DeepCluster", "AND", "SeLa (K-means) [128 x 1]"]


def test_rows_of_an_imbalance_or_on_other_images_say_so():
    uneven = replace(ENTRY, setting=replace(CIFAR10, imbalance="light"))
    assert "SeLa [128 x 1], light imbalance" in [row["method"] for row in comparison.compare([uneven]).rows]
    elsewhere = replace(ENTRY, setting=replace(CIFAR10, judged="cifar100"))
    assert comparison.compare([elsewhere]).rows[1]["images"] == "cifar100, trained on cifar10"


def test_images_that_the_paper_does_not_have_bring_no_figures_of_its():
    found = comparison.compare([DIGITS])
    assert found.table.columns == ("", "method", "images", "state", "kNN", "linear", "NMI", "AMI", "ARI", "ACC")
    assert len(found.rows) == 1


def test_the_last_layer_is_shown_or_all_of_them():
    probed = replace(DIGITS, measures={"linear conv1": 0.1, "linear conv2": 0.2, "linear conv2 top5": 0.3})
    assert comparison.compare([probed]).table.columns[4:7] == ("kNN", "linear conv2", "NMI")
    shown = comparison.compare([probed], "all").table.columns
    assert shown[4:8] == ("kNN", "linear conv1", "linear conv2", "linear conv2 top5")
    with pytest.raises(ValueError, match="layers='first' is unknown"):
        comparison.compare([probed], "first")


def test_the_last_layer_is_the_last_measured_whatever_its_name():
    probed = replace(DIGITS, measures={"linear stage4": 0.1, "linear pool": 0.2})
    assert "linear pool" in comparison.compare([probed]).table.columns
    assert "linear stage4" not in comparison.compare([probed]).table.columns


@pytest.mark.parametrize(
    "weights, layers, row, measure",
    [
        ("trained", "all", {"top1": 0.5, "top5": 0.9}, "finetune all"),
        ("trained", "fc6", {"class": "mean", "ap11": 0.5, "ap": 0.4}, "finetune fc6 mAP"),
        ("random", "all", {"top1": 0.5, "top5": None}, "from scratch"),
        ("random", "classifier", {"top1": 0.5, "top5": None}, "random classifier"),
    ],
)
def test_fine_tuning_is_a_measure_named_by_what_trains(weights, layers, row, measure):
    settings = {"weights": weights, "layers": layers, "labelled": 50, "crops": 10}
    measures, baselines, remarks = comparison.of_result(result("finetune", [row, {"class": "x"}], settings))
    assert (measures, baselines) == ({measure: 0.5}, {})
    assert remarks == (f"{measure} with 50 labelled images, 10 crops",)
    assert cell(comparison.compare([replace(DIGITS, measures=measures)]), 0, measure) == "50.0"


def test_fine_tuning_on_pascal_voc_stands_beside_the_papers():
    setting = replace(CIFAR10, dataset="imagenet2012", judged="voc/2007", num_clusters="3000x10")
    tuned = replace(ENTRY, setting=setting, kind="elsewhere", measures={"finetune fc6 mAP": 0.7})
    found = comparison.compare([tuned])
    column = found.table.columns.index("finetune fc6 mAP")
    assert found.table.rows[0][column : column + 2] == ("70.0", "73.1")
    assert found.table.columns[column + 1] == "(paper)"
    retrained = ["SeLa- [3000 x 10], labels of ResNet-50", "SeLa- [3000 x 10] + Rot, labels of ResNet-50"]
    assert [row["method"] for row in found.rows[1:]] == ["DeepCluster", *retrained]


def test_unseen_images_have_columns_only_when_measured():
    unseen = replace(DIGITS, measures={"test nmi": 0.5})
    assert comparison.compare([unseen]).table.columns[-1] == "test nmi"


def test_a_baseline_measured_along_with_several_runs_stands_once():
    pixels = replace(DIGITS, method="raw pixels", kind="baseline")
    rows = comparison.compare([DIGITS, pixels, replace(DIGITS, name="runs/e"), replace(pixels, name="runs/e")]).rows
    assert [row["method"] for row in rows] == ["SeLa [128 x 10]", "raw pixels", "SeLa [128 x 10]"]


def test_notes_tell_what_a_reader_must_know():
    short = replace(ENTRY, epochs=3, remarks=("kNN with k=5, sigma=0.1",))
    notes = comparison.compare([short, DIGITS]).notes
    assert "marked (paper) are the paper's figures" in notes[0]
    assert "runs/a is set to 3 epochs, the paper's experiment to 400." in notes
    assert "runs/a: kNN with k=5, sigma=0.1." in notes
    assert "Rows are of different images (cifar10, digits): compare those of the same." in notes
    assert len(comparison.compare([ENTRY]).notes) == 1


def test_what_is_missing_is_told_of_runs_and_configs_only():
    full = replace(DIGITS, measures={"knn": 0.1, "linear pool": 0.2, "accuracy": 0.3})
    assert comparison.compare([full]).missing == ()
    assert comparison.compare([replace(full, kind="kept")]).missing == ()
    assert comparison.compare([DIGITS]).missing == (("linear", "runs/d"), ("clusters", "runs/d"))
    assert comparison.compare([replace(DIGITS, kind="elsewhere")]).missing == ()
    assert comparison.compare([replace(DIGITS, kind="baseline")]).missing == ()
    missing = comparison.compare([replace(DIGITS, kind="not run", measures={})]).missing
    assert [measure for measure, _ in missing] == ["all", "knn", "linear", "clusters"]


def test_markdown_has_a_header_a_rule_and_a_line_per_row():
    lines = comparison.markdown(comparison.compare([replace(DIGITS, name="a|b")]).table).splitlines()
    assert lines[0] == "|  | method | images | state | kNN | linear | NMI | AMI | ARI | ACC |"
    assert lines[1] == "| --- |" + " ---: |" * 9
    assert lines[2] == r"| a\|b | SeLa [128 x 10] | digits | 400 epochs | 75.1 | - | - | - | - | - |"


def test_nothing_cannot_be_compared():
    with pytest.raises(ValueError, match="nothing to compare"):
        comparison.compare([])
