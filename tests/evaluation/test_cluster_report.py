"""All heads of a labelling as rows and tables."""

import numpy as np
import pytest
from sklearn import metrics

from selabel_tf.evaluation import cluster_report, clustering
from selabel_tf.evaluation.report import format_table

N = 61


def labelling():
    rng = np.random.default_rng(0)
    classes = rng.integers(3, size=N)
    return np.stack([rng.integers(5, size=N), (classes + 1) % 3, rng.integers(7, size=N)], axis=1), classes


def test_every_head_has_its_sizes_and_scores():
    labels, classes = labelling()
    rows = cluster_report.measure("labels", "squares", labels, classes, (5, 4, 7))
    second = rows[1]
    assert (second["head"], second["clusters"], second["num_classes"], second["num_examples"]) == ("1", 4, 3, N)
    assert (second["smallest"], second["largest"], second["empty"]) == (0, np.bincount(classes).max(), 1)
    assert {name: second[name] for name in cluster_report.COLUMNS} == clustering.scores(labels[:, 1], classes)
    assert second["accuracy"] == 1.0
    entropies = clustering.class_entropies(labels[:, 0], classes, 5)
    assert (rows[0]["lowest_entropy"], rows[0]["highest_entropy"]) == (entropies.min(), entropies.max())


def test_all_heads_are_summed_up_and_compared_with_each_other():
    labels, classes = labelling()
    rows = cluster_report.measure("labels", "squares", labels, classes, (5, 4, 7))
    assert [row["head"] for row in rows] == ["0", "1", "2", "mean", "std", "best", "0", "0", "1"]
    each = [metrics.adjusted_rand_score(classes, column) for column in labels.T]
    assert [row["ari"] for row in rows[3:6]] == pytest.approx([np.mean(each), np.std(each), max(each)])
    between = {(row["head"], row["other_head"]): row["nmi"] for row in rows[6:]}
    assert between["0", "2"] == pytest.approx(metrics.normalized_mutual_info_score(labels[:, 0], labels[:, 2]))


def test_without_true_classes_there_are_sizes_and_agreement_of_heads():
    rows = cluster_report.measure("assigned", "squares", labelling()[0], None, (5, 4, 7))
    assert [("nmi" in row, "other_head" in row) for row in rows] == [(False, False)] * 3 + [(True, True)] * 3
    heads, between = cluster_report.tables(rows)
    assert heads.columns == ("head", "clusters", "smallest", "largest", "empty")
    assert "no true classes to measure against" in heads.title
    assert between.title == "NMI between heads"


def test_the_tables_show_every_head_and_every_two_heads():
    labels, classes = labelling()
    labels[:, 2] = labels[:, 0] + 2
    rows = cluster_report.measure("labels", "squares", labels, classes, (5, 4, 7))
    heads, between = cluster_report.tables(rows)
    assert heads.title == f"Labels of the training images: squares, {N} images, 3 true classes"
    assert [row[0] for row in heads.rows] == ["0", "1", "2", "mean", "std", "best"]
    text = format_table(between)
    assert "most alike are heads 0 and 2, 1.000" in text
    assert between.rows[0][1] is None  # a head and itself
    assert between.rows[2][1] == between.rows[0][3] == pytest.approx(1.0)


def test_a_single_head_has_no_table_of_pairs():
    labels, classes = labelling()
    assert len(cluster_report.tables(cluster_report.measure("labels", "x", labels[:, :1], classes, (5,)))) == 1


def test_progress_is_told_after_every_head():
    done = []
    cluster_report.measure("labels", "x", labelling()[0], None, (5, 4, 7), done.append)
    assert done == [1, 2, 3]


def test_labels_of_other_heads_or_classes_of_other_images_are_refused():
    labels, classes = labelling()
    with pytest.raises(ValueError, match=r"labels have shape \(61, 3\), expected \[N, 2\]: one column per head"):
        cluster_report.measure("labels", "x", labels, classes, (5, 4))
    with pytest.raises(ValueError, match="classes has 60 entries and labels has 61"):
        cluster_report.measure("labels", "x", labels, classes[1:], (5, 4, 7))
    with pytest.raises(ValueError, match="labels run from 0 to 6, expected 0 to 5"):
        cluster_report.measure("labels", "x", labels, classes, (5, 4, 6))
