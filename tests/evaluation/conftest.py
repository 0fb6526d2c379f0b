"""A small report made by hand: what a run would give, without a run. And a browser to look at it."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from selabel_tf.evaluation import cluster_summary, curves, report_page
from selabel_tf.evaluation.report import Table
from selabel_tf.evaluation.report_contents import Images, Map, Neighbourhood, RunContents, Verdict

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference to an element


def images_of(count, num_clusters, num_classes, tile, shown, name, ids):
    generator = np.random.default_rng(count)
    labels = np.stack([generator.permutation(count) % k for k in num_clusters], axis=1)
    classes = generator.integers(num_classes, size=count) if num_classes else None
    rows = generator.permutation(count)[:shown]
    tiles = generator.integers(256, size=(shown, tile, tile, 3), dtype=np.uint8) if tile else None
    features = generator.normal(size=(count, 11)).astype(np.float32)
    confidence = generator.random((shown, len(num_clusters)))
    heads = []
    for column, k in zip(labels.T, num_clusters, strict=True):
        summary = cluster_summary.summarise(column, k, classes)
        sure = cluster_summary.cluster_means(generator.random(count), column, k)[:, 0]
        near = cluster_summary.nearest_clusters(features, column, k)
        heads.append(cluster_summary.ClusterSummary(*list(vars(summary).values())[:4], sure, near))
    return Images(name, tuple(ids), labels, classes, rows, tiles, confidence, tuple(heads))


@pytest.fixture(scope="session")
def example_report():
    """A function: what differs -> RunContents of 61 made-up images, two heads, three classes."""

    def make(count=61, num_clusters=(5, 7), class_names=("ant", "bee", "cow"), tile=16, shown=53, ids=None, **changes):
        ids = [f"folder/{row}.png" for row in range(count)] if ids is None else ids
        num_classes = len(class_names or ())
        training = images_of(count, num_clusters, num_classes, tile, shown, "made up", ids)
        held_out = images_of(29, num_clusters, num_classes, tile, 23, "held out", map(str, range(29)))
        records = [{"kind": "epoch", "step": 3 * e, "epoch": e, "loss": 2 / e, "learning_rate": 0.1} for e in (1, 2, 3)]
        for step in (0, 3):
            for head, k in enumerate(num_clusters):
                own = {
                    "clusters": k,
                    "nmi": 0.1 * head + step / 10,
                    "nmi_previous": 0.5,
                    "changed": 0.3,
                    "accuracy": 0.2,
                }
                records.append({"kind": "labels", "step": step, "head": head, **own})
        rows = training.shown
        parts = {
            "name": "example",
            "highlights": (("Last loss", "0.667", "ln K = 1.8"),),
            "facts": {"dataset": "made up", "seed": "7"},
            "verdict": Verdict("well", "Nothing is wrong."),
            "lacking": (),
            "tables": (Table("Measured", ("what", "NMI"), (("ours", 0.61), ("pixels", None)), "A note."),),
            "num_clusters": tuple(num_clusters),
            "class_names": class_names,
            "training": training,
            "held_out": held_out,
            "curves": curves.from_records(records),
            "filters": np.full((13, 17, 3), 90, np.uint8),
            "probes": (("Probe", (("conv1", 0.31), ("conv2", 0.47))),),
            "neighbours": Neighbourhood(rows[:2], rows[2:8].reshape(2, 3), rows[8:14].reshape(2, 3), shown - 1),
            "map": Map(rows[:19], {"PCA": np.random.default_rng(1).random((19, 2))}),
            "features": np.random.default_rng(2).normal(size=(shown, 11)),
            "command": "python -m tools.train --config=x",
            "probe_command": "python -m tools.linear_probe --workdir=x",
        }
        return RunContents(**parts | changes)

    return make


class Browser:
    """One headless window. Names cannot be resolved in it: a page that asks the network for anything fails to."""

    def __init__(self, folder, width=1200, height=900):
        folder.mkdir(exist_ok=True)
        port_file = folder / "driver.log"
        self._log = port_file.open("w")
        self._driver = subprocess.Popen([DRIVER, "--port=0"], stdout=self._log, stderr=subprocess.STDOUT)
        self._address = f"http://127.0.0.1:{self._port(port_file)}"
        arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--force-prefers-reduced-motion",
        ]
        arguments += [f"--window-size={width},{height}", f"--user-data-dir={folder / 'profile'}"]
        arguments += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        options = {"binary": CHROMIUM, "args": arguments}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self._session = ""
        self._session = (
            f"/session/{self._call('POST', '/session', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"
        )

    def open(self, path):
        """Opens a report and waits until its first view is there; the browser."""
        self._call("POST", "/url", {"url": path.resolve().as_uri()})
        self.wait("performance.getEntriesByName('report-ready').length")
        return self

    def run(self, script, *arguments):
        """What `script`, the body of a function, returns; a promise is waited for."""
        return self._call("POST", "/execute/sync", {"script": script, "args": arguments})

    def click(self, selector):
        """Clicks on an element, scrolled to where the navigation at the top does not cover it."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self._call("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector, text):
        self._call("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def choose(self, selector, value):
        """Chooses an option of a <select> as a hand would: with its event."""
        script = "const s = document.querySelector(arguments[0]); s.value = arguments[1];"
        self.run(script + "s.dispatchEvent(new Event('change', {bubbles: true}));", selector, value)

    def press(self, key):
        """Presses a key where the focus is, e.g. DOWN, ENTER or ESCAPE."""
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def wait(self, script, seconds=20):
        """Waits until `script`, an expression, is true."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({script})"):
            assert time.monotonic() < end, f"never came true: {script}"
            time.sleep(0.05)

    def clusters(self):
        """The clusters in the grid, in its order."""
        return self.run(
            "return [...document.querySelectorAll('.grid .cardbox')].map(one => Number(one.dataset.cluster))"
        )

    def painted(self, selector):
        """Whether a canvas has anything but emptiness on it."""
        script = "const c = document.querySelector(arguments[0]); const d = c.getContext('2d')"
        script += ".getImageData(0, 0, c.width, c.height).data; return d.some((v, i) => i % 4 === 3 && v > 0)"
        return self.run(script, selector)

    def complaints(self):
        """What the console says since the last call: errors and warnings, but for what the tests themselves cause."""
        said = [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]
        return [message for message in said if "willReadFrequently" not in message]

    def requests(self):
        """The addresses asked for since the last call, without data inside the page and the browser's own first tab."""
        asked = []
        for entry in self._call("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.append(message["params"]["request"]["url"])
        return [url for url in asked if not url.startswith(("data:", "blob:", "chrome:", "chrome-untrusted:"))]

    def command(self, name, parameters):
        """What one of the Chrome DevTools' own commands answers."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def close(self):
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(10)
            self._log.close()

    def _find(self, selector):
        return self._call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def _call(self, method, path, content=None):
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._address + self._session + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {json.load(error)['value']['message']}") from None

    def _port(self, log):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            found = re.search(r"started successfully on port (\d+)", log.read_text())
            if found:
                return int(found[1])
            time.sleep(0.05)
        raise AssertionError(f"chromedriver did not start: {log.read_text()}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium through chromedriver, spoken to by the W3C WebDriver protocol (JSON over HTTP)."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no browser here: sudo apt-get install chromium chromium-driver")
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture
def page(browser, tmp_path):
    """A function: RunContents ... -> the browser, with their page open. At the end nobody has complained or asked."""
    path = tmp_path / "report.html"

    def show(*runs):
        report_page.write(path, runs, title="A <b>run</b>")
        browser.complaints(), browser.requests()
        return browser.open(path)

    yield show
    assert browser.complaints() == []
    assert set(browser.requests()) <= {path.resolve().as_uri()}
    assert browser.run("return window.ran") is None
