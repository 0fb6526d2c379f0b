import pytest

from selabel_tf.evaluation import trial_tables

TRIAL = {
    "name": "a",
    "rows": ["SeLa [128 x 1]"],
    "config": "configs/cifar10_cpu.py",
    "overrides": ["seed=1", "model.num_clusters=128", "evaluation.knn_every=4"],
    "seed": 0,
    "epochs": 16,
    "images": 20000,
    "curve": [[4, 0.3777], [8, 0.4126]],
    "knn": 0.4381,
    "linear": 0.473,
    "nmi": 0.1364,
}
PLACE = "before\n<!-- trials: rows -->\nold\n<!-- end of trials -->\nafter\n"


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_a_row_is_the_mean_of_its_seeds_and_shows_each():
    other = TRIAL | {"name": "b", "seed": 1, "knn": 0.4481, "linear": 0.483, "nmi": 0.1464}
    header, _, row = rows(trial_tables.by_row([TRIAL, TRIAL | {"rows": [], "knn": 0.9}, other]))
    assert header == ["", "images", "epochs", "seeds", "kNN", "linear", "NMI"]
    figures = ["44.3 (43.8, 44.8)", "47.8 (47.3, 48.3)", "0.141 (0.136, 0.146)"]
    assert row == ["SeLa [128 x 1]", "20000", "16", "0, 1", *figures]


def test_without_rows_the_table_says_so():
    assert trial_tables.by_row([TRIAL | {"rows": []}]) == trial_tables.all_trials([]) == "No trial yet."


def test_rows_of_a_part_have_a_table_of_their_own():
    ours, theirs = TRIAL | {"rows": ["other", "heads: ten small ones"]}, TRIAL | {"rows": ["small: x"]}
    *_, row = rows(trial_tables.by_row([TRIAL, ours, theirs], "heads"))
    assert row[0] == "ten small ones"
    assert [row[0] for row in rows(trial_tables.by_row([TRIAL, ours, theirs]))[2:]] == ["SeLa [128 x 1]", "other"]
    place = PLACE.replace("rows", "rows of small")
    assert trial_tables.by_row([theirs], "small") in trial_tables.renewed(place, [TRIAL, ours, theirs], "README.md")


def test_what_was_not_measured_is_a_dash():
    *_, row = rows(trial_tables.by_row([TRIAL | {"linear": None}, TRIAL | {"nmi": None}]))
    assert row[-3:] == ["43.8 (43.8, 43.8)", "-", "-"]


def test_seeds_of_one_row_must_be_of_one_protocol():
    with pytest.raises(ValueError, match=r"'SeLa \[128 x 1\]' differ in images or epochs.*rows of their own"):
        trial_tables.by_row([TRIAL, TRIAL | {"epochs": 8}])


def test_all_trials_are_shown_with_what_they_change_and_their_curve():
    header, _, row, other = rows(trial_tables.all_trials([TRIAL, TRIAL | {"rows": [], "curve": [], "overrides": []}]))
    assert header[0] == "config and what was changed"
    assert row == [
        "cifar10_cpu, model.num_clusters=128",
        "0",
        "20000",
        "16",
        "4: 37.8 8: 41.3",
        "43.8",
        "47.3",
        "0.136",
    ]
    assert (other[0], other[4]) == ("cifar10_cpu", "-")


def test_a_trial_that_was_given_up_shows_how_far_it_came():
    *_, row = rows(trial_tables.all_trials([TRIAL | {"stopped": 8, "knn": None, "linear": None}]))
    assert row[3:7] == ["8 of 16", "4: 37.8 8: 41.3", "-", "-"]


def test_tables_are_renewed_between_their_comments_and_nowhere_else():
    once = trial_tables.renewed(PLACE, [TRIAL], "README.md")
    assert "old" not in once
    assert once.startswith("before\n<!-- trials: rows -->\n\n| ") and once.endswith(
        "|\n\n<!-- end of trials -->\nafter\n"
    )
    assert trial_tables.by_row([TRIAL]) in once
    assert trial_tables.renewed(once, [TRIAL], "README.md") == once
    both = PLACE + PLACE.replace("rows", "all")
    assert trial_tables.all_trials([TRIAL]) in trial_tables.renewed(both, [TRIAL], "README.md")


@pytest.mark.parametrize(
    "text", ["", PLACE.replace("end of", ""), PLACE.replace("rows", "some"), PLACE.replace("rows", "rows of")]
)
def test_a_text_without_a_place_is_refused(text):
    with pytest.raises(ValueError, match=r"NOTES.md has no place for the trials\. Put the lines <!-- trials: rows -->"):
        trial_tables.renewed(text, [TRIAL], "NOTES.md")
