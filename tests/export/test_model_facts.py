"""What model.json says of clusters."""

import numpy as np

from selabel_tf.export.model_facts import name_clusters


def test_clusters_are_named_by_their_most_frequent_class():
    labels = np.array([[0, 2], [0, 2], [0, 0], [1, 0]])
    classes = np.array([1, 1, 0, 2])
    first, second = name_clusters(labels, [2, 3], classes, ["cat", "dog", "owl"])
    assert first == [{"size": 3, "class": "dog", "share": 2 / 3}, {"size": 1, "class": "owl", "share": 1.0}]
    assert second == [{"size": 2, "class": "cat", "share": 0.5}, {"size": 0}, {"size": 2, "class": "dog", "share": 1.0}]


def test_without_classes_only_sizes_are_told():
    assert name_clusters(np.array([[1], [1]]), [2]) == [[{"size": 0}, {"size": 2}]]
    assert name_clusters(np.array([[1]]), [2], np.array([7]))[0][1]["class"] == "7"
