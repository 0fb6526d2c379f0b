"""The report in a real browser: what a hand and an eye find in it."""

import re

import numpy as np
import pytest

from selabel_tf.evaluation import report_page

RIGHT, LEFT, ENTER, ESCAPE = "\ue014", "\ue012", "\ue007", "\ue00c"
HOSTILE = "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"


def test_the_report_of_a_real_run_opens_without_complaint(browser, finished_run):
    browser.requests(), browser.complaints()
    browser.open(finished_run / "report.html")
    assert len(browser.clusters()) == 5
    browser.wait("document.querySelector('.cardbox canvas').width > 100")
    browser.run("document.querySelector('#map').scrollIntoView()")
    browser.wait("document.querySelector('.query')")
    assert "Too early for the collapse doctor" in browser.text("#glance")
    assert browser.complaints() == []
    assert browser.requests() == [(finished_run / "report.html").resolve().as_uri()]


def test_head_images_and_order_can_be_chosen(page, example_report):
    contents = example_report(num_clusters=(5, 31))
    browser = page(contents)
    summary = contents.training.heads[0]
    assert browser.run("return document.querySelector('[data-pager]').hidden")  # five clusters are one page
    measures = {
        "entropy": np.round(summary.entropy, 3),
        "mixed": -np.round(summary.entropy, 3),
        "purity": -np.round(summary.purity, 4),
        "confidence": -np.round(summary.confidence, 3),
        "doubt": np.round(summary.confidence, 3),
        "largest": -summary.sizes,
        "smallest": summary.sizes,
        "number": np.arange(5),
    }
    assert browser.clusters() == np.argsort(measures["entropy"], kind="stable").tolist()
    for order, by in measures.items():
        browser.choose("[data-sort]", order)
        assert browser.clusters() == np.argsort(by, kind="stable").tolist(), order
    options = browser.run("return [...document.querySelector('[data-sort]').options].map(one => one.value)")
    assert set(options) == {*measures, "random"}
    browser.choose("[data-head]", "1")
    assert len(browser.clusters()) == 30 and browser.text("[data-pages]") == "of 2"
    browser.click("[data-next]")
    assert browser.clusters() == [30]
    browser.run(
        "const page = document.querySelector('[data-page]'); page.value = 1; page.dispatchEvent(new Event('change'))"
    )
    assert browser.clusters() == list(range(30))
    browser.run(
        "const page = document.querySelector('[data-page]'); page.value = 99; page.dispatchEvent(new Event('change'))"
    )
    assert browser.run("return document.querySelector('[data-page]').value") == "2"


def test_the_papers_pages_show_lowest_entropy_and_random_clusters_of_training_and_held_out_images(page, example_report):
    contents = example_report(num_clusters=(5, 31))
    browser = page(contents)
    browser.choose("[data-head]", "1")
    for key, images in (("training", "61 training images"), ("heldout", "29 held-out images")):
        browser.click(f"[data-preset='{key} entropy']")
        assert images in browser.text("[data-status]") and "lowest entropy" in browser.text("[data-status]")
        by_entropy = np.argsort(np.round(contents.training.heads[1].entropy, 3), kind="stable").tolist()
        assert browser.clusters() == by_entropy[:30]
        browser.click(f"[data-preset='{key} random']")
        first = browser.clusters()
        assert images in browser.text("[data-status]") and sorted(first) != first
        browser.click(f"[data-preset='{key} random']")
        assert browser.clusters() != first  # another draw
        pressed = browser.run("return [...document.querySelectorAll('[aria-pressed=true]')].map(b => b.dataset.preset)")
        assert pressed == [f"{key} random"]
    cluster = browser.clusters()[0]
    browser.click(".cardbox")
    size = np.sum(contents.held_out.labels[:, 1] == cluster)
    assert f"{size} held-out image" in browser.text("#cluster")


def test_a_card_shows_the_classes_of_its_cluster_as_a_bar_and_as_frames(page, example_report):
    contents = example_report()
    browser = page(contents)
    cluster = browser.clusters()[0]
    classes = contents.training.classes[contents.training.labels[:, 0] == cluster]
    counts = np.bincount(classes, minlength=3)
    parts = browser.run("return [...document.querySelector('.mixture').children].map(one => +one.style.flexGrow)")
    assert parts == sorted(counts[counts > 0].tolist(), reverse=True)
    place = next(p for p, row in enumerate(contents.training.shown) if contents.training.labels[row, 0] == cluster)
    legend = browser.run("return [...document.querySelectorAll('[data-legend] i')].map(one => one.style.background)")
    corner = "document.querySelector('.cardbox canvas').getContext('2d').getImageData(2, 2, 1, 1).data"
    browser.wait(f"{corner}[3] > 0")
    red, green, blue, _ = browser.run(f"return [...{corner}]")
    assert legend[contents.training.classes[contents.training.shown[place]]] == f"rgb({red}, {green}, {blue})"


def test_a_cluster_opens_by_keyboard_and_shows_images_classes_and_neighbours(page, example_report):
    contents = example_report()
    browser = page(contents)
    first, second = browser.clusters()[:2]
    browser.run("document.querySelector('.cardbox').focus()")
    browser.press(RIGHT)
    browser.wait(f"Number(document.activeElement.dataset.cluster) === {second}")
    browser.press(ENTER)
    browser.wait("document.getElementById('cluster').open")
    labels, classes = contents.training.labels[:, 0], contents.training.classes
    text = browser.text("#cluster")
    assert f"Head 0, cluster {second}" in text and f"{np.sum(labels == second)} training images" in text
    counts = np.bincount(classes[labels == second], minlength=3)
    shown = re.findall(r"(\d+) \(\d", text)
    assert [int(count) for count in shown] == sorted(counts[counts > 0].tolist(), reverse=True)
    with_thumbnail = np.sum(labels[contents.training.shown] == second)
    assert browser.run("return document.querySelectorAll('.thumbs button').length") == with_thumbnail
    browser.wait("document.querySelector('.thumbs canvas').width > 10")
    near = browser.run(
        "return [...document.querySelectorAll('.near .cardbox')].map(one => Number(one.dataset.cluster))"
    )
    assert near == [k for k in contents.training.heads[0].nearest[second].tolist() if k >= 0]
    browser.click(".thumbs button")
    assert "head 1: cluster" in browser.text("#cluster .hit")
    browser.press(LEFT)
    assert browser.text("#cluster-title") == f"Head 0, cluster {first}"
    browser.press(ESCAPE)
    browser.wait("!document.getElementById('cluster').open")
    assert browser.run("return Number(document.activeElement.dataset.cluster)") == first


def test_thumbnails_are_those_of_their_images(page, example_report):
    contents = example_report(class_names=None)
    contents.training.tiles[:] = np.linspace(20, 230, 53).astype(np.uint8)[:, None, None, None]
    browser = page(contents)
    place = 29
    browser.type("#search-0", str(contents.training.shown[place]))
    browser.press(ENTER)
    browser.wait("document.querySelector('.hit canvas')")
    browser.wait("document.querySelector('.hit canvas').width > 10")
    pixel = "document.querySelector('.hit canvas').getContext('2d').getImageData(9, 9, 1, 1).data"
    browser.wait(f"{pixel}[3] > 0")
    np.testing.assert_allclose(browser.run(f"return [...{pixel}]")[:3], contents.training.tiles[place, 0, 0], atol=4)


def test_an_image_is_found_by_name_and_by_index(page, example_report):
    contents = example_report()
    browser = page(contents)
    browser.type("#search-0", "37.PNG")
    browser.click("[data-search] button")
    text = browser.text("[data-found]")
    assert "image 37, folder/37.png" in text
    for head in (0, 1):
        assert f"head {head}: cluster {contents.training.labels[37, head]}" in text
    browser.click("[data-found] .chips button")
    assert browser.text("#cluster-title") == f"Head 0, cluster {contents.training.labels[37, 0]}"
    browser.press(ESCAPE)
    browser.run("document.querySelector('#search-0').value = 'nowhere'")
    browser.click("[data-search] button")
    told = (
        "No image has the index or a name with “nowhere”. There are 61 training and 29 held-out images, counted from 0."
    )
    assert told in browser.text("[data-found]")
    browser.run("document.querySelector('#search-0').value = '23'")
    browser.click("[data-search] button")
    hits = browser.run("return [...document.querySelectorAll('[data-found] .hit')].map(one => one.innerText)")
    assert hits[0].startswith("training image 23, folder/23.png") and hits[1].startswith("held-out image 23,")
    for head in (0, 1):
        assert f"head {head}: cluster {contents.held_out.labels[23, head]}" in hits[1]


def test_colours_follow_the_button(page, example_report):
    browser = page(example_report())
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    browser.click("#theme")
    assert browser.text("#theme").endswith("Dark") and browser.run(ground) == "rgb(18, 22, 27)"
    browser.click("#theme")
    assert browser.text("#theme").endswith("Light") and browser.run(ground) == "rgb(255, 255, 255)"
    browser.click("#theme")
    assert browser.run(ground) == light


def test_the_map_is_drawn_and_its_numbers_are_a_table(page, example_report):
    contents = example_report()
    browser = page(contents)
    browser.run("document.querySelector('#map').scrollIntoView()")
    browser.wait("document.querySelector('[data-map] [data-legend]').children.length === 3")
    assert browser.painted("[data-canvas]")
    browser.click("[data-points] summary")
    browser.wait("document.querySelectorAll('[data-points] tbody tr').length === 19")
    browser.choose("[data-colour]", "1")
    row = browser.run("return [...document.querySelectorAll('[data-points] tbody tr')[4].cells].map(c => c.innerText)")
    index = contents.map.rows[4]
    assert row[:2] == [str(index), f"folder/{index}.png"] and row[4] == str(contents.training.labels[index, 1])
    assert len(browser.run("return [...document.querySelectorAll('.query')].map(q => q.ariaLabel)")) == 2


def test_a_point_of_the_map_tells_its_image_and_its_clusters_and_groups_can_be_shown_alone(page, example_report):
    contents = example_report()
    browser = page(contents)
    browser.run("document.querySelector('#map').scrollIntoView()")
    browser.wait("document.querySelector('[data-only]').options.length === 4")  # all, and three classes
    x, y = contents.map.points["PCA"][4]
    script = """
      const canvas = document.querySelector('[data-canvas]'), box = canvas.getBoundingClientRect();
      const [x, y] = [arguments[0], 1 - arguments[1]].map(v => 14 + v * (canvas.clientWidth - 28));
      const at = {bubbles: true, clientX: box.x + x, clientY: box.y + y};
      canvas.dispatchEvent(new PointerEvent('pointermove', at));
      canvas.dispatchEvent(new MouseEvent('click', at));"""
    browser.run(script, x, y)
    row = contents.map.rows[4]
    assert browser.text("[data-tip]").startswith(f"training image {row}, folder/{row}.png")
    assert f"head 1: cluster {contents.training.labels[row, 1]}" in browser.text("[data-picked]")
    dark = """
      const canvas = document.querySelector('[data-canvas]');
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      return pixels.filter((v, i) => i % 4 === 3 && v > 128).length"""
    everything = browser.run(dark)
    counts = np.bincount(contents.training.classes[contents.map.rows], minlength=3)
    browser.choose("[data-only]", "1")
    assert browser.run(dark) / everything == pytest.approx(counts[1] / counts.sum(), abs=0.1)
    browser.choose("[data-colour]", "0")
    assert browser.run("return document.querySelector('[data-only]').options.length") == 1 + 5


def test_hostile_names_are_text(page, example_report):
    ids = [f"{HOSTILE}{row}" for row in range(61)]
    browser = page(example_report(ids=ids, class_names=(HOSTILE, "b", "c"), name=HOSTILE))
    assert browser.text("h1") == "A <b>run</b>"
    browser.type("#search-0", "onerror")
    browser.click("[data-search] button")
    assert f"{HOSTILE}0" in browser.text("[data-found]")
    browser.click(".cardbox")
    assert HOSTILE in browser.text("#cluster")


def test_a_page_without_classes_images_and_held_out_images_works(page, example_report):
    nothing = dict.fromkeys(("held_out", "neighbours", "map", "filters", "features"))
    browser = page(example_report(class_names=None, tile=0, num_clusters=(5,), **nothing))
    assert "Their images are not in this report" in browser.text("[data-status]")
    browser.click(".cardbox")
    assert "The images are not in this report." in browser.text("#cluster")


def test_two_runs_are_browsed_side_by_side_and_nothing_overflows_a_phone(page, example_report):
    browser = page(example_report(), example_report(num_clusters=(11,)))
    count = "return document.querySelectorAll(\"[data-run='1'] .cardbox\").length"
    assert browser.run(count) == 11
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.command("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.wait("innerWidth === 390")
        assert browser.run("return document.documentElement.scrollWidth") == 390
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("clusters", [128, 3_000])
def test_a_page_of_ten_heads_on_fifty_thousand_images_is_there_at_once(browser, tmp_path, example_report, clusters):
    names = list(map(str, range(50_021)))
    contents = example_report(count=50_021, num_clusters=(clusters,) * 10, tile=32, shown=6_007, ids=names)
    report_page.write(tmp_path / "large.html", [contents], title="large")
    working_seconds(browser)  # counts from here, and anew for a page
    browser.open(tmp_path / "large.html")
    assert len(browser.clusters()) == 30
    assert 0.01 < working_seconds(browser) < 2
    begun = working_seconds(browser)
    browser.choose("[data-head]", "9")
    assert browser.text("[data-status]").startswith(f"Head 9, {clusters} clusters of 50021 training images")
    assert working_seconds(browser) - begun < 0.5


def working_seconds(browser):
    """What the page's thread has worked so far, whatever else the machine is busy with."""
    browser.command("Performance.enable", {"timeDomain": "threadTicks"})
    metrics = browser.command("Performance.getMetrics", {})["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
