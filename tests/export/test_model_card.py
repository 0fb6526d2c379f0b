import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from selabel_tf.export import model_card
from selabel_tf.export.model_card import Card

CARD = Card(
    name="small",
    method="Trained by hand.",
    classes="Nobody has seen the classes.",
    limits=("It is slow.", "It is small."),
    summary={"network": "resnet18"},
    data={"name": "plates", "fingerprint": "f00d"},
    recipe={"epochs": 3},
    label_passes={"label passes": 5},
    preprocessing={"mean": "0.4"},
    checksums={"sha256 of backbone.keras": "beef"},
    input_shape=(31, 37, 3),
    evaluation=({"title": "knn", "columns": ["k", "accuracy"], "rows": [["5", "0.971"]], "note": "on the test split"},),
)
HOSTILE = (
    "x | y\n\n# Big\n<script>alert(1)</script> [a](http://evil.example) ![i](j) `c` *b* __u__ &lt; www.evil.example"
)


def tokens(text):
    """Everything that a Markdown renderer (with tables, strikethrough and bare addresses as links) makes of `text`."""
    parser = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    return [inner for token in parser.parse(text) for inner in (token, *(token.children or ()))]


def headings(text):
    parsed = MarkdownIt("commonmark").parse(text)
    return [b.content for a, b in itertools.pairwise(parsed) if a.type == "heading_open"]


def plain(text):
    """What a reader sees of one line of Markdown; anything but text is a failure."""
    seen = []
    for token in tokens(text):
        assert token.type in ("paragraph_open", "paragraph_close", "inline", "text", "text_special"), token.type
        seen += [token.content] if token.type.startswith("text") else []
    return "".join(seen)


def test_the_card_has_all_its_parts():
    text = model_card.render(CARD)
    assert headings(text) == [
        "small",
        "Data",
        "Recipe",
        "Label passes",
        "Evaluation",
        "knn",
        "Preprocessing",
        "Intended use",
        "Limits",
        "How to load it",
        "Checksums",
    ]
    for row in ("| fingerprint | f00d |", "| epochs | 3 |", "| label passes | 5 |", "| 5 | 0.971 |", "| mean | 0.4 |"):
        assert f"\n{row}\n" in text
    assert "float32 [n, 31, 37, 3]" in text
    assert "--workdir=RUN " in text
    for sentence in (
        "on the test split",
        "Trained by hand.",
        "Nobody has seen the classes.",
        "\n- It is small.\n- Prob",
    ):
        assert sentence in text
    assert sum(token.type == "table_open" for token in tokens(text)) == 7


def test_a_run_without_results_says_so():
    text = model_card.render(replace(CARD, evaluation=()))
    assert "Nothing was measured in the run folder yet" in text


def test_names_change_nothing_but_their_own_text():
    def kinds(text):
        return [token.type for token in tokens(text) if not token.type.startswith(("text", "inline"))]

    hostile = replace(
        CARD,
        name=HOSTILE,
        method=HOSTILE,
        classes=HOSTILE,
        limits=(HOSTILE, "=== 1. x"),
        data={"name": HOSTILE, HOSTILE: "f00d"},
        recipe={"epochs": HOSTILE},
        evaluation=({"title": HOSTILE, "columns": [HOSTILE, "b"], "rows": [[HOSTILE, HOSTILE]], "note": HOSTILE},),
    )
    assert kinds(model_card.render(hostile)) == kinds(model_card.render(CARD))


@given(st.text(max_size=40) | st.text(st.sampled_from("\\`*_[]{}()|~#$!<>&-+=.1) \n@:/w"), max_size=15))
def test_escaped_text_reads_as_it_was_meant(text):
    wanted = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    assert plain(model_card.escape(text)) == wanted


@pytest.mark.parametrize("text", ["see http://evil.example", "www.evil.example", "WWW.evil.example", "me@evil.example"])
def test_addresses_are_not_left_for_renderers_to_link(text):
    escaped = model_card.escape(text)
    assert not re.search(r"(?i)://|www\.|@", escaped)
    assert plain(escaped) == text


def test_the_file_is_written_whole(tmp_path):
    model_card.write(tmp_path / "CARD.md", CARD)
    assert (tmp_path / "CARD.md").read_text() == model_card.render(CARD)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        model_card.write(tmp_path / "none" / "CARD.md", CARD)
