"""The doctor on histories made by hand: each sign alone, and next to it what must not be taken for it.

Runs that really fail are in tests/training/test_failing_runs.py.
"""

import math

import pytest

from selabel_tf.evaluation import collapse

STEPS = 50  # an epoch
HEALTHY = {
    "clusters": 10,
    "smallest": 90,
    "largest": 110,
    "changed": 0.4,
    "objective_after": 2.25,
    "changed_by_chance": 0.9,
    "nmi_previous": 0.5,
    "accuracy": 0.5,
    "unpredicted": [],
    "closest_head": 1,
    "nmi_closest": 0.6,
}


def history(num_passes=12, so_far=9, loss=1.5, heads=2, steps=STEPS, first_pass=0, **signs):
    """Records of `so_far` of `num_passes` passes, one an epoch; `signs` are those of head 0 from `first_pass` on."""
    records = []
    for number in range(so_far):
        if number:
            epoch = {"kind": "epoch", "step": number * steps, "epoch": number, "loss": loss, "learning_rate": 0.1}
            records.append(epoch)
        for head in range(heads):
            place = {"step": number * steps, "label_pass": number, "label_passes": num_passes, "head": head}
            ill = signs if head == 0 and number >= first_pass else {}
            records.append({"kind": "labels", **place, **HEALTHY, "closest_head": 1 - head, **ill})
        records.append({"kind": "knn", "step": number * steps, "accuracy": 0.3})  # of other kinds nothing is read
    return records


def problems(records):
    return [(finding.problem, finding.head) for finding in collapse.findings(records)]


def test_of_a_healthy_run_nothing_is_said():
    for so_far in range(13):
        assert problems(history(so_far=so_far)) == []


def test_an_empty_history_is_no_illness():
    assert collapse.findings([]) == collapse.new_findings([]) == ()


def test_a_loss_at_ln_k_is_seen():
    records = history(loss=math.log(10) - 0.01)
    assert problems(records) == [("stuck loss", None)]
    (finding,) = collapse.findings(records)
    assert "After 400 steps the loss is 2.293; an untrained network had 2.250 (ln K = 2.303)" in finding.seen
    assert "optimizer.learning_rate (now 0.1)" in finding.advice
    assert str(finding) == f"{finding.seen} {finding.advice}"


def test_heads_of_different_sizes_have_a_common_ln_k():
    at = (math.log(10) + math.log(100)) / 2
    signs = {"clusters": 100, "objective_after": 4.7}  # (2.25 + 4.7) / 2 is above the mean ln K
    assert problems(history(loss=0.99 * at, **signs)) == [("stuck loss", None)]
    assert problems(history(loss=0.97 * at, **signs)) == []


@pytest.mark.parametrize(("objective", "found"), [(2.25, False), (2.15, True), (None, False)])
def test_labels_made_by_an_untrained_network_are_easier_than_ln_k_without_anything_learnt(objective, found):
    records = history(heads=1, loss=2.15, objective_after=objective, closest_head=None, nmi_closest=None)
    assert (problems(records) == [("stuck loss", None)]) == found


@pytest.mark.parametrize("changes", [{"steps": 11}, {"so_far": 2}, {"loss": 0.97 * 2.25}])
def test_a_loss_that_may_still_move_is_not_stuck(changes):
    assert problems(history(**{"loss": math.log(10), **changes})) == []


def test_one_good_epoch_of_the_last_two_is_enough():
    records = history(loss=math.log(10))
    [r for r in records if r["kind"] == "epoch"][-2]["loss"] = 2.0
    assert problems(records) == []


def test_labels_that_no_longer_move_are_seen_in_time_to_do_something():
    frozen = {"changed": 0.0005, "nmi_previous": 0.9999}
    assert problems(history(**frozen)) == [("frozen labels", 0)]
    (finding,) = collapse.findings(history(**frozen))
    assert "at most 0.0005), with 3 passes still to come" in finding.seen
    assert problems(history(so_far=10, **frozen)) == []  # the tenth of twelve: they may have come to rest
    assert problems(history(changed=0.002)) == []
    assert problems(history(first_pass=7, **frozen)) == []  # two passes only
    assert problems(history(first_pass=6, **frozen)) == [("frozen labels", 0)]


def test_frozen_k_means_labels_are_seen_by_their_nmi():
    assert problems(history(changed=None, nmi_previous=0.9995)) == [("frozen labels", 0)]
    assert "1 - NMI" in collapse.findings(history(changed=None, nmi_previous=0.9995))[0].seen
    assert problems(history(changed=None, nmi_previous=0.99)) == []


def test_passes_closer_than_an_epoch_say_nothing_about_labels():
    records = history(changed=0.0)
    for number, record in enumerate(r for r in records if r["kind"] == "labels"):
        record["step"] = number // 2  # one before every step
    assert problems(records) == []


@pytest.mark.parametrize(
    ("clusters", "agreement", "found"),
    [
        (128, 1.0, True),
        (128, 1.4, True),
        (128, 2.4, False),  # early in a healthy run on CIFAR-10
        (1000, 6.0, False),
        (2, 1.0, True),
        (2, 1.3, False),  # 65% of two clusters' labels kept: half as much again cannot be asked of chance 50%
    ],
)
def test_labels_that_change_completely_are_seen_by_chance_agreement(clusters, agreement, found):
    signs = {"clusters": clusters, "changed": 1 - agreement / clusters, "changed_by_chance": 1 - 1 / clusters}
    assert (("unstable labels", 0) in problems(history(**signs))) == found
    if found and clusters == 128:
        text = collapse.findings(history(**signs))[0].seen
        assert f"({100 * signs['changed']:.1f}% of them at the last, 99.2% would by chance)" in text


def test_the_first_pass_of_a_head_meets_random_labels_and_does_not_count():
    signs = {"changed": 0.9, "changed_by_chance": 0.9}
    assert problems(history(so_far=3, **signs)) == []
    assert problems(history(so_far=4, **signs)) == [("unstable labels", 0)]


def test_k_means_numbers_its_clusters_anew_which_is_no_illness():
    assert problems(history(changed=None)) == []


def test_a_cluster_that_is_never_predicted_is_named():
    (finding,) = collapse.findings(history(unpredicted=[3, 7]))
    assert (finding.problem, finding.head) == ("unpredicted clusters", 0)
    assert "Head 0: 2 of 10 clusters (3, 7) predicted for no image" in finding.seen
    (finding,) = collapse.findings(history(unpredicted=list(range(1, 9))))
    assert "8 of 10 clusters (1, 2, 3, 4, 5 and 3 more)" in finding.seen


@pytest.mark.parametrize(
    "changes",
    [{"so_far": 8}, {"first_pass": 7}, {"accuracy": 0.02}, {"smallest": 4}],
    ids=["early", "not three times", "hardly anything is predicted right", "too small to be expected"],
)
def test_a_cluster_that_may_still_come_is_not_named(changes):
    assert problems(history(unpredicted=[3], **changes)) == []


def test_another_cluster_each_time_is_no_finding():
    records = history()
    for record in records:
        if record["kind"] == "labels":
            record["unpredicted"] = [record["label_pass"] % 3]
    assert problems(records) == []


def test_a_head_that_copies_another_is_seen():
    assert problems(history(nmi_closest=0.99)) == [("copied head", 0)]
    assert "Head 0 has the labels of head 1 (NMI 0.990)" in collapse.findings(history(nmi_closest=0.99))[0].seen
    assert problems(history(nmi_closest=0.9)) == []
    assert problems(history(heads=1, closest_head=None, nmi_closest=None)) == []


def test_heads_in_turn_are_judged_by_their_own_passes():
    records = history(num_passes=24, so_far=17, nmi_closest=0.99)
    turn = [r for r in records if r["kind"] != "labels" or r["label_pass"] % 2 == r["head"]]
    assert problems(turn) == [("copied head", 0)]


def test_what_was_said_after_the_pass_before_is_not_said_again():
    said = [collapse.new_findings(history(so_far=n, nmi_closest=0.99)) for n in range(13)]
    assert [len(findings) for findings in said] == [0, 0, 0, 0, 1] + [0] * 8
    both = history(so_far=9, nmi_closest=0.99)
    for record in both:
        if record["kind"] == "labels" and record["label_pass"] >= 6 and record["head"] == 0:
            record["changed"] = 0.0
    assert [finding.problem for finding in collapse.findings(both)] == ["frozen labels", "copied head"]
    assert [finding.problem for finding in collapse.new_findings(both)] == ["frozen labels"]
