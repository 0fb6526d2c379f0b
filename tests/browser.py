"""A real browser for tests: Chromium through chromedriver, spoken to by the W3C WebDriver protocol, JSON over HTTP."""

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
MISSING = "needs a browser: install the Debian packages chromium and chromium-driver"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference to an element


class Browser:
    """One headless window. Names cannot be resolved in it: a page that asks the network for anything fails to."""

    def __init__(self, folder, *, dark=False, width=1200, height=900):
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
        arguments += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
        options = {"binary": CHROMIUM, "args": arguments}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self._session = ""
        self._session = (
            f"/session/{self._call('POST', '/session', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"
        )

    def open(self, path):
        self._call("POST", "/url", {"url": path.resolve().as_uri()})

    def run(self, script, *arguments):
        """What `script`, the body of a function, returns; a promise is waited for."""
        return self._call("POST", "/execute/sync", {"script": script, "args": arguments})

    def click(self, selector):
        self._call("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector, text):
        self._call("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def choose(self, selector, value):
        """Chooses an option of a <select> as a hand would: with its event."""
        script = "const s = document.querySelector(arguments[0]); s.value = arguments[1];"
        self.run(script + "s.dispatchEvent(new Event('change', {bubbles: true}));", selector, value)

    def press(self, key):
        """Presses a key where the focus is, e.g. "\\ue015" for arrow down, "\\ue007" for Enter, "\\ue00c" for Escape."""
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

    def complaints(self):
        """What the console says since the last call: errors and warnings."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def requests(self):
        """The addresses asked for since the last call, without data inside the page and the browser's own first tab."""
        asked = []
        for entry in self._call("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.append(message["params"]["request"]["url"])
        return [url for url in asked if not url.startswith(("data:", "blob:", "chrome:"))]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

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
