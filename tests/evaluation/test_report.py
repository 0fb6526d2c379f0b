import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from selabel_tf.evaluation import figures
from selabel_tf.evaluation.report import Table, format_table, write_report

PNG = figures.png(np.arange(35, dtype=np.uint8).reshape(5, 7, 1))
HOSTILE = "<script>alert('1')</script> & \"quoted\" {{ 7 * 7 }}"
VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """The tags, attributes and texts by tag of a page whose tags must balance."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.setdefault(self.open[-1], []).append(data.strip())


def written(tmp_path, **changes):
    parts = {"title": "A run", "tables": [], "figures": [], "facts": {}} | changes
    write_report(tmp_path / "report.html", **parts)
    return (tmp_path / "report.html").read_text(encoding="utf-8")


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


def test_the_page_holds_every_cell_fact_note_and_command(tmp_path):
    tables = [
        Table("First", ("labels", "NMI"), [("ours", 0.6789), ("pixels", None)], note="A note."),
        Table("Second", ("features", "kNN"), [("random", 0.31)]),
    ]
    page = Page(written(tmp_path, tables=tables, facts={"examples": 1797, "share": 0.25}, command="python -m x"))
    assert page.texts["title"] == page.texts["h1"] == ["A run"]
    assert page.texts["h2"] == ["First", "Second", "The same again"]
    assert page.texts["th"] == ["labels", "NMI", "ours", "pixels", "features", "kNN", "random"]
    assert page.texts["td"] == ["0.679", "-", "0.310"]
    assert page.texts["p"] == ["A note."]
    assert page.texts["dt"] == ["examples", "share"]
    assert page.texts["dd"] == ["1797", "0.250"]
    assert page.texts["code"] == ["python -m x"]


def test_an_empty_page_has_no_empty_boxes(tmp_path):
    assert not {"dl", "section", "figure", "pre"} & set(Page(written(tmp_path)).tags)


def test_figures_are_inside_the_page(tmp_path):
    page = Page(written(tmp_path, figures=[("The clusters", PNG, "A grid of digits")]))
    attributes = dict(page.attributes)
    prefix, data = attributes["src"].split(",")
    assert prefix == "data:image/png;base64"
    assert base64.b64decode(data) == PNG
    assert attributes["alt"] == "A grid of digits"
    assert page.texts["figcaption"] == ["The clusters"]


def test_hostile_text_is_shown_and_not_run(tmp_path):
    table = Table(HOSTILE, (HOSTILE, HOSTILE), [(HOSTILE, HOSTILE)], note=HOSTILE)
    text = written(
        tmp_path,
        title=HOSTILE,
        tables=[table],
        figures=[(HOSTILE, PNG, HOSTILE)],
        facts={HOSTILE: HOSTILE},
        command=HOSTILE,
    )
    page = Page(text)
    assert "script" not in page.tags
    assert dict(page.attributes)["alt"] == HOSTILE
    for tag in ("title", "h1", "h2", "th", "td", "p", "dt", "dd", "figcaption", "code"):
        assert page.texts[tag][0] == HOSTILE
    assert "<script" not in text


def test_the_page_asks_the_network_for_nothing(tmp_path):
    table = Table("t", ("a", "b"), [("x", 1)])
    text = written(tmp_path, tables=[table], figures=[("c", PNG, "a")], facts={"a": 1}, command="c")
    assert not re.search(r"https?:|//\w|@import|url\(", re.sub(r"base64,[^\"]*", "", text))
    page = Page(text)
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert all(value.startswith("data:") for name, value in page.attributes if name in ("src", "href"))
    assert any(value.startswith("default-src 'none'") for name, value in page.attributes if name == "content")


def test_the_page_suits_small_and_dark_screens(tmp_path):
    text = written(tmp_path)
    assert 'name="viewport" content="width=device-width' in text
    assert "prefers-color-scheme: dark" in text


def test_the_same_results_give_the_same_page(tmp_path):
    parts = {"tables": [Table("t", ("a",), [("x",)])], "figures": [("c", PNG, "a")]}
    assert written(tmp_path, **parts) == written(tmp_path, **parts)


def test_a_figure_that_is_no_png_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="The figure 'Curves' is not a PNG file"):
        written(tmp_path, figures=[("Curves", b"GIF89a", "a")])
    assert list(tmp_path.iterdir()) == []
