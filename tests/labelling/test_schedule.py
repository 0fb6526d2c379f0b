"""The schedule against the formulas in exact fractions, and against hand-made cases."""

from fractions import Fraction
from itertools import pairwise
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selabel_tf.labelling import schedule


def test_hand_made_quadratic_schedule():
    assert schedule.steps("quadratic", 5, 100) == [0, 4, 16, 36, 64]


def test_hand_made_linear_schedule():
    assert schedule.steps("linear", 4, 103) == [0, 25, 51, 77]


@pytest.mark.parametrize("kind, power", [("linear", 1), ("quadratic", 2)])
def test_steps_without_collisions_are_the_exact_fractions_rounded_down(kind, power):
    expected = [floor(Fraction(i, 13) ** power * 100_003) for i in range(13)]
    assert schedule.steps(kind, 13, 100_003) == expected


def test_crowded_passes_move_on_to_the_next_free_step():
    # wanted: 0 0 0 0 1 2 3 4 6 7
    assert schedule.steps("quadratic", 10, 10) == list(range(10))
    # wanted: 0 0 1 3 5 9 13
    assert schedule.steps("quadratic", 7, 19) == [0, 1, 2, 3, 6, 9, 13]


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(st.sampled_from(sorted(schedule.SCHEDULES)), st.integers(1, 400), st.integers(0, 3000))
def test_steps_are_as_many_as_asked_distinct_ascending_from_zero_and_before_the_end(kind, num_relabels, more):
    total_steps = num_relabels + more
    steps = schedule.steps(kind, num_relabels, total_steps)
    assert len(steps) == num_relabels
    assert steps[0] == 0 and steps[-1] < total_steps
    assert all(a < b for a, b in pairwise(steps))


def test_no_label_pass_leaves_the_random_labels():
    assert schedule.steps("quadratic", 0, 97) == []
    assert schedule.steps("linear", 0, 0) == []


def test_one_linear_pass_per_epoch_falls_on_the_first_step_of_each_epoch():
    steps_per_epoch = 157
    assert schedule.steps("linear", 16, 16 * steps_per_epoch) == [e * steps_per_epoch for e in range(16)]


@pytest.mark.parametrize("kind", sorted(schedule.SCHEDULES))
def test_a_short_training_has_a_pass_before_every_step_at_most(kind):
    assert schedule.steps(kind, 11, 7) == [0, 1, 2, 3, 4, 5, 6]


def test_a_negative_number_of_passes_is_refused():
    with pytest.raises(ValueError, match="num_relabels=-3 is negative"):
        schedule.steps("linear", -3, 7)


def test_an_unknown_schedule_is_refused_with_the_names_that_exist():
    with pytest.raises(ValueError, match=r"Unknown schedule 'cubic'\. Available: linear, quadratic\."):
        schedule.steps("cubic", 3, 7)


def test_all_heads_in_every_pass():
    assert [schedule.heads_for_pass("all", n, 3) for n in range(2)] == [[0, 1, 2], [0, 1, 2]]


def test_one_head_per_pass_in_turn():
    assert [schedule.heads_for_pass("in_turn", n, 3) for n in range(5)] == [[0], [1], [2], [0], [1]]


def test_an_unknown_choice_of_heads_is_refused_with_the_names_that_exist():
    with pytest.raises(ValueError, match=r"Unknown choice of heads 'some'\. Available: all, in_turn\."):
        schedule.heads_for_pass("some", 0, 3)


@pytest.mark.parametrize("pass_number, num_heads", [(-1, 3), (0, 0)])
def test_impossible_pass_or_head_numbers_are_refused(pass_number, num_heads):
    with pytest.raises(ValueError, match=f"got pass_number={pass_number}, num_heads={num_heads}"):
        schedule.heads_for_pass("all", pass_number, num_heads)
