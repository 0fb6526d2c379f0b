"""The report in a real browser: reachable by everybody, and its charts as files."""

import csv
import time

import numpy as np
import pytest
from PIL import Image

from selabel_tf.evaluation.report_contents import Verdict

# What can be operated or seen, is not hidden from readers of the screen, and has no name for them.
NAMELESS = """
const words = one => one.getAttribute("aria-label") || one.innerText || one.alt || "";
const name = one => words(one) || [...one.labels || [], ...one.querySelectorAll("[aria-label]")].map(words).join("");
const all = "button, select, input, a, summary, img, canvas, svg.chart, [role=region], [role=group]";
return [...document.querySelectorAll(all)]
  .filter(one => one.checkVisibility() && !one.closest("[aria-hidden=true]") && !name(one).trim())
  .map(one => one.outerHTML.slice(0, 120));
"""
# Texts whose contrast to the ground they are painted on is below 4.5, by WCAG 2.
PALE = r"""
const numbers = text => text.match(/[\d.]+/g).map(Number);
const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const ground = one => {
  const found = numbers(getComputedStyle(one).backgroundColor);
  if (found[3] === undefined || found[3] === 1) return found;
  return one.parentElement ? ground(one.parentElement) : [255, 255, 255];
};
const contrast = one => {
  const style = getComputedStyle(one), ink = light(numbers(one.closest("svg") ? style.fill : style.color));
  const back = light(ground(one));
  return (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05);
};
const speaks = one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim());
const texts = [...document.querySelectorAll("body *")].filter(one =>
  speaks(one) && one.checkVisibility() && !one.disabled && !one.closest("script, style, title, noscript"));
if (texts.length < 300) throw Error(`only ${texts.length} texts`);
return texts.filter(one => contrast(one) < 4.5).map(one => [contrast(one), one.outerHTML.slice(0, 120)]);
"""


def test_everything_that_can_be_operated_or_seen_has_a_name(page, example_report):
    browser = page(example_report())
    browser.run("document.querySelector('#map').scrollIntoView()")
    browser.wait("document.querySelector('.query') && document.querySelector('[data-only]').options.length > 1")
    browser.click(".cardbox")
    nameless = browser.run(NAMELESS)
    assert nameless == []
    twice = browser.run(
        "const ids = [...document.querySelectorAll('[id]')].map(one => one.id); return ids.length - new Set(ids).size"
    )
    assert twice == 0


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_every_text_on_the_page_stands_out_from_its_ground(page, example_report, mode):
    browser = page(example_report(lacking=("Something.",)), example_report(verdict=Verdict("ill", "Ill.", ("Why.",))))
    browser.run("document.documentElement.dataset.theme = arguments[0]", mode)
    browser.run("document.querySelector('#map').scrollIntoView()")
    browser.wait("document.querySelector('.query')")
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.click(".cardbox")
    pale = browser.run(PALE)
    assert pale == []


def test_a_chart_is_saved_as_a_picture_and_its_numbers_as_a_table(page, example_report, tmp_path):
    contents = example_report()
    browser = page(contents)
    browser.command("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.click("figure[data-name='nmi'] summary")
    for kind in ("csv", "png"):
        browser.click(f"figure[data-name='nmi'] [data-save='{kind}']")
        end = time.monotonic() + 20
        while not (tmp_path / f"nmi.{kind}").is_file():
            assert time.monotonic() < end
            time.sleep(0.05)
    nmi = next(curve for curve in contents.curves if curve.key == "nmi")
    rows = list(csv.reader((tmp_path / "nmi.csv").open(encoding="utf-8")))
    assert rows[0] == ["epoch", *nmi.names]
    np.testing.assert_allclose(np.array(rows[1:], float), np.column_stack([nmi.epochs, nmi.values]), rtol=1e-3)
    picture = np.asarray(Image.open(tmp_path / "nmi.png").convert("RGB"))
    assert picture.shape == (660, 1140, 3)
    assert (picture == [26, 99, 166]).all(axis=2).any()  # the lines have the page's colour
