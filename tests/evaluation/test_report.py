import numpy as np
import pytest

from selabel_tf.evaluation.report import Table, format_table


def test_a_table_in_the_terminal_is_aligned():
    rows = [("self-labels", 20, 0.68, np.float32(0.5)), ("pixels", 1000, 0.77049, None)]
    table = Table("Against the digits", ("labels", "clusters", "NMI", "ARI"), rows, note="Mean of 10 heads.")
    assert format_table(table).split("\n") == [
        "Against the digits",
        "-----------------------------------",
        "labels       clusters    NMI    ARI",
        "-----------------------------------",
        "self-labels        20  0.680  0.500",
        "pixels           1000  0.770      -",
        "-----------------------------------",
        "Mean of 10 heads.",
    ]


def test_a_table_may_have_no_note_and_no_rows():
    lines = ["Empty", "------", "a  bcd", "------", "------"]
    assert format_table(Table("Empty", ("a", "bcd"), [])).split("\n") == lines


def test_cells_that_are_no_fractions_stay_as_they_are():
    cells = Table("t", ("a", "b", "c", "d"), [("x", np.int64(7), float("nan"), True)]).cells()
    assert cells == [["x", "7", "nan", "True"]]


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match=r"Row 1 of table 'Sizes' has 3 cells, expected 2: name, size"):
        Table("Sizes", ("name", "size"), [("a", 1), ("b", 2, 3)])
