import math

import numpy as np
import pytest

from selabel_tf.evaluation import curves


def label_record(step, head, **numbers):
    return {"kind": "labels", "step": step, "head": head, "clusters": (5, 7)[head], **numbers}


EPOCHS = [{"kind": "epoch", "step": 3 * e, "epoch": e, "loss": 1 / e, "rotation_accuracy": 0.2 * e} for e in (1, 2)]


def by_key(records):
    return {curve.key: curve for curve in curves.from_records(records)}


def test_every_number_of_the_epochs_is_a_curve_and_the_loss_has_ln_k_beside_it():
    found = by_key([*EPOCHS, label_record(0, 0, nmi=0.1), label_record(0, 1, nmi=0.2)])
    np.testing.assert_allclose(found["loss"].epochs, [1, 2])
    np.testing.assert_allclose(found["loss"].values, [[1], [0.5]])
    assert found["loss"].reference == ("ln K", pytest.approx((math.log(5) + math.log(7)) / 2))
    assert found["rotation_accuracy"].title == "Rotation accuracy"
    assert not {"step", "epoch", "kind"} & set(found)


def test_rotation_has_a_line_for_training_and_one_for_held_out_images_and_chance_beside_them():
    alone = by_key(EPOCHS)["rotation_accuracy"]
    assert alone.names == ("training images",) and alone.reference == ("chance", 0.25)
    np.testing.assert_allclose(alone.values, [[0.2], [0.4]])
    both = by_key([*EPOCHS, {"kind": "rotation", "step": 6, "epoch": 2, "accuracy": 0.3, "loss": 1.2}])
    assert both["rotation_accuracy"].names == ("training images", "held-out images")
    np.testing.assert_allclose(both["rotation_accuracy"].values, [[0.2, np.nan], [0.4, 0.3]])


def test_label_passes_stand_at_fractions_of_epochs_with_a_line_per_head_and_their_mean():
    records = [label_record(step, head, nmi=0.1 * step + head) for step in (0, 1, 6) for head in (0, 1)]
    nmi = by_key([*EPOCHS, *records])["nmi"]
    np.testing.assert_allclose(nmi.epochs, [0, 1 / 3, 2])
    assert nmi.names == ("head 0", "head 1", "mean") and nmi.strong == ("mean",)
    np.testing.assert_allclose(nmi.values[:, 2], [0.5, 0.6, 1.1])
    assert nmi.last("head 1") == pytest.approx(1.6)


def test_heads_in_turn_have_lines_with_gaps_and_no_mean():
    changed = by_key([*EPOCHS, label_record(0, 0, changed=0.9), label_record(3, 1, changed=0.8)])["changed"]
    assert changed.names == ("head 0", "head 1") and changed.strong == ()
    np.testing.assert_allclose(changed.values, [[0.9, np.nan], [np.nan, 0.8]])


def test_entropy_shows_the_purest_the_mean_and_the_most_mixed_cluster():
    numbers = [{"entropy": 1.0, "lowest_entropy": 0.1, "highest_entropy": 2.0}, {"entropy": 2.0, "lowest_entropy": 0.3}]
    records = [label_record(0, head, **{"highest_entropy": 3.0, **own}) for head, own in enumerate(numbers)]
    entropy = by_key([*EPOCHS, *records])["entropy"]
    assert entropy.names == entropy.strong == ("purest cluster", "mean", "most mixed cluster")
    np.testing.assert_allclose(entropy.values, [[0.2, 1.5, 2.5]])


def test_neighbours_over_epochs_say_their_settings():
    knn = by_key([{"kind": "knn", "step": 6, "epoch": 2, "accuracy": 0.4, "k": 5, "sigma": 0.1}])["knn"]
    np.testing.assert_allclose(knn.values, [[0.4]])
    assert "k=5, sigma=0.1" in knn.note


@pytest.mark.parametrize("missing", [{}, {"nmi": None}])
def test_what_was_not_measured_has_no_curve(missing):
    assert set(by_key([label_record(0, 0, **missing)])) == set()
    assert curves.from_records([]) == ()
