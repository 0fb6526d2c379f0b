import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from selabel_tf.evaluation import report_page
from selabel_tf.evaluation.report import Table
from selabel_tf.evaluation.report_contents import Verdict

HOSTILE = "</script><script>alert('1')</script> & \"quoted\" {{ 7 * 7 }}"
VOID = {"meta", "img", "br", "link", "input", "line", "rect", "polyline"}


class Page(HTMLParser):
    """Tags, attributes, texts by tag and data blocks by id of a page whose tags must balance."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts, self.blocks = [], [], [], {}, {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.blocks[self.tags[-1][1].get("id")] = data
        elif data.strip():
            self.texts.setdefault(self.open[-1], []).append(data.strip())


def page_of(*runs, title="A run"):
    text = report_page.render(runs, title=title)
    return text, Page(text)


def unpacked(page, name, kind):
    return np.frombuffer(base64.b64decode(page.blocks[name]), kind)


def test_labels_classes_and_thumbnails_can_be_read_back(example_report):
    contents = example_report()
    _, page = page_of(contents)
    for key, images in contents.image_sets.items():
        for head in (0, 1):
            np.testing.assert_array_equal(unpacked(page, f"r0-{key}-labels-{head}", "<u2"), images.labels[:, head])
            summary = json.loads(page.blocks[f"r0-{key}-head-{head}"])
            np.testing.assert_allclose(summary["entropy"], images.heads[head].entropy, atol=1e-3)
            np.testing.assert_array_equal(summary["nearest"], images.heads[head].nearest)
        np.testing.assert_array_equal(unpacked(page, f"r0-{key}-classes", "<i4"), images.classes)
        np.testing.assert_array_equal(unpacked(page, f"r0-{key}-shown", "<i4"), images.shown)
        assert base64.b64decode(page.blocks[f"r0-{key}-sheet-0"]).startswith(b"\xff\xd8")
        sure = unpacked(page, f"r0-{key}-sure", "u1").reshape(-1, 2)
        np.testing.assert_allclose(sure / 255, images.confidence, atol=0.003)
    ids = json.loads(page.blocks["r0-training-ids"])
    assert tuple(ids["prefix"] + rest for rest in ids["rest"]) == contents.training.ids
    assert "r0-heldout-ids" not in page.blocks  # plain numbers need not be written
    meta = json.loads(page.blocks["r0"])
    assert meta["clusters"] == [5, 7] and meta["sets"]["training"]["count"] == 61


def test_every_number_of_every_chart_is_there_as_text(example_report):
    contents = example_report()
    _, page = page_of(contents)
    cells = page.texts["td"]
    for curve in contents.curves:
        assert curve.title in page.texts["h3"]
        for value in curve.values[np.isfinite(curve.values)]:
            assert f"{value:.4g}" in cells
    for words in ("conv1", "conv2", "ours", "A note.", "0.310", "0.610", "Nothing is wrong.", "0.667"):
        assert any(words in text for texts in page.texts.values() for text in texts)


def test_a_long_curve_is_thinned_in_its_table_and_says_so():
    from selabel_tf.evaluation.curves import Curve

    long = Curve("k", "t", "", np.arange(997.0), np.arange(997.0)[:, None], ("t",), ("t",))
    table = report_page.curve_table(long)
    assert len(table.rows) == 500 and table.note == "500 of 997 points."
    assert (table.rows[0][0], table.rows[-1][0]) == ("0", "996")


def test_hostile_names_are_shown_and_not_run(example_report):
    ids = [f"{HOSTILE}{row}\udce4\u2028" for row in range(61)]
    table = Table(HOSTILE, (HOSTILE, HOSTILE), ((HOSTILE, HOSTILE),), HOSTILE)
    contents = example_report(
        ids=ids,
        class_names=(HOSTILE, "b", "c"),
        name=HOSTILE,
        command=HOSTILE,
        tables=(table,),
        highlights=((HOSTILE,) * 3,),
        facts={HOSTILE: HOSTILE},
        lacking=(HOSTILE,),
        verdict=Verdict("ill", HOSTILE, (HOSTILE,)),
        probes=((HOSTILE, ((HOSTILE, 0.5),)),),
    )
    text, page = page_of(contents, contents, title=HOSTILE)
    own = text.count("<script")
    assert own == len(page.blocks)  # none but ours: all data blocks, and the script of the page
    assert sum("type" not in attributes for tag, attributes in page.tags if tag == "script") == 1
    assert page.texts["title"][0] == page.texts["h1"][0] == HOSTILE
    for tag in ("td", "th", "dt", "code", "li", "h3"):
        assert any(HOSTILE in found for found in page.texts[tag])
    rest = json.loads(page.blocks["r0-training-ids"])
    assert rest["prefix"] + rest["rest"][3] == ids[3]
    assert json.loads(page.blocks["r0"])["classNames"][0] == HOSTILE


def test_the_page_promises_to_ask_the_network_for_nothing(example_report):
    text, page = page_of(example_report())
    without_data = re.sub(r'base64,[^"]*|<script type="text/plain"[^<]*', "", text)
    assert not re.search(r"https?:|(?<![:/])//\w|@import|url\(|fetch\(|XMLHttpRequest|eval\(|innerHTML", without_data)
    policy = next(
        attributes["content"] for tag, attributes in page.tags if "default-src" in attributes.get("content", "")
    )
    assert policy.startswith("default-src 'none'") and "connect-src" not in policy and "*" not in policy
    for name, value in page.attributes:
        if name in ("src", "href"):
            assert value.startswith(("data:", "#"))


def test_pictures_have_words_in_their_place_and_inputs_have_labels(example_report):
    _, page = page_of(example_report())
    for tag, attributes in page.tags:
        if tag == "img":
            assert attributes["alt"]
        if tag == "svg" and attributes.get("class") == "chart":
            assert attributes["aria-label"] and attributes["role"] == "img"
    inputs = [attributes for tag, attributes in page.tags if tag == "input"]
    named = {attributes.get("for") for tag, attributes in page.tags if tag == "label"}
    assert len(inputs) == 2
    assert all(
        attributes.get("id") in named or "data-page" in attributes for attributes in inputs
    )  # the latter is inside its label
    assert 'name="viewport" content="width=device-width' in report_page.render([example_report()], title="t")


def test_without_classes_there_is_no_sorting_by_them(example_report):
    _, page = page_of(example_report(class_names=None, num_clusters=(5,)))
    options = {attributes.get("value") for tag, attributes in page.tags if tag == "option"}
    assert not {"entropy", "purity", "class"} & options
    assert {"confidence", "largest", "random"} <= options
    assert "r0-training-classes" not in page.blocks


def test_two_runs_stand_side_by_side(example_report):
    text, page = page_of(example_report(), example_report(facts={"dataset": "made up", "seed": "8"}))
    assert {"r0", "r1", "r1-training-labels-1"} <= set(page.blocks)
    assert [t for t in page.texts["h3"] if t.startswith("example")][:2] == ["example (1)", "example (2)"]
    rows = [attributes.get("class") for tag, attributes in page.tags if tag == "tr"]
    assert rows.count("differs") == 1  # the seed
    assert text.count("strong run1") >= 5  # curves of both in one chart


def test_an_empty_run_gives_a_page_too(example_report):
    bare = {name: () for name in ("highlights", "tables", "curves", "probes")}
    bare |= dict.fromkeys(("filters", "neighbours", "map", "held_out", "features"))
    text, _ = page_of(example_report(tile=0, shown=0 + 14, **bare))
    for sentence in ("No epoch has been logged", "no filters to show", "no images to compare", "no features to draw"):
        assert sentence in text


@pytest.mark.parametrize("colours", [0, 1])
def test_text_is_legible_in_light_and_dark(colours):
    """Contrast by WCAG 2: at least 4.5 for text."""
    style = report_page._file("report.css")
    theme = dict(re.findall(r"--([\w-]+): (#\w{6})", re.findall(r":root[^{]*\{([^}]*)\}", style)[colours]))

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    pairs = [(ink, ground) for ink in ("ink", "muted", "accent") for ground in ("page", "card", "notice", "raised")]
    pairs += [("well-ink", "well"), ("ill-ink", "ill"), ("accent-ink", "accent"), ("second", "page")]
    for ink, ground in pairs:
        light, dark = sorted((luminance(theme[ink]), luminance(theme[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)
