"""A headless Chromium, spoken to over two pipes in the DevTools protocol; no driver and no network.

Knows no page of ours. Where there is no Chromium, `binary()` is None and tests skip.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEYS = {" ": "Space", "Tab": "Tab", "Escape": "Escape", "Enter": "Enter"}
CODES = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, " ": 32, "Tab": 9, "Escape": 27, "Enter": 13}


def binary() -> str | None:
    """Where a Chromium is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def open(self, address: str) -> None:
        """Go to an address and wait until it has loaded."""
        seen = len(self.events("Page.loadEventFired"))
        self.call("Page.navigate", url=address)
        while len(self.events("Page.loadEventFired")) == seen:
            self.browser.read()

    def run(self, script: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        text = {"text": " "} if key == " " else {"text": "\r"} if key == "Enter" else {}
        code = {"windowsVirtualKeyCode": CODES[key]} if key in CODES else {"text": key}
        name = {"key": key, "code": KEYS.get(key, key), "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **name, **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **name, **code)

    def point(self, x: float, y: float) -> None:
        """Move the pointer there."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def events(self, method: str) -> list[dict[str, Any]]:
        return [e["params"] for e in self.browser.heard if e["method"] == method and e.get("sessionId") == self.session]

    def forget(self) -> None:
        """Forget what was heard of the page that is open."""
        self.browser.heard = [e for e in self.browser.heard if e.get("sessionId") != self.session]

    def complaints(self) -> list[Any]:
        """Errors and warnings that went to the console, uncaught exceptions included."""
        self.run("1")  # what was said before has arrived then
        said = [e for e in self.events("Runtime.consoleAPICalled") if e["type"] in ("error", "warning", "assert")]
        return [*said, *self.events("Runtime.exceptionThrown"), *self.events("Log.entryAdded")]

    def requested(self) -> list[str]:
        """Every address that the page asked for."""
        return [e["request"]["url"] for e in self.events("Network.requestWillBeSent")]


class Browser:
    """The browser; `heard` is every event that is not forgotten."""

    def __init__(self, folder: Path) -> None:
        down_read, self._down = os.pipe()
        self._up, up_write = os.pipe()
        command = [
            binary() or "", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-extensions", "--renderer-process-limit=1",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}", "about:blank",
        ]  # fmt: skip
        # It reads from descriptor 3 and writes to 4; the originals lie above both, so that neither is overwritten.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (down_read, up_write)]
        start = (
            "import os, sys\n"
            "for end, to in zip(sys.argv[1:3], (3, 4)): os.dup2(int(end), to)\n"
            "os.execv(sys.argv[3], sys.argv[3:])"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", start, *map(str, ends), *command],
            pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (down_read, up_write, *ends):
            os.close(end)
        self._number, self._unread = 0, b""
        self._answers: dict[int, dict[str, Any]] = {}
        self.heard: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._down, json.dumps(message).encode() + b"\0")
        while number not in self._answers:
            self.read()
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def read(self) -> None:
        """Take in what the browser says next."""
        data = os.read(self._up, 1 << 20)
        if not data:
            raise RuntimeError("Chromium has ended.")
        *messages, self._unread = (self._unread + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.heard.append(message)

    def page(self) -> Page:
        """A new tab, whose console and requests are listened to."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        return page

    def close(self) -> None:
        """End the browser."""
        try:
            self.call("Browser.close")
        finally:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            os.close(self._down)
            os.close(self._up)


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in a folder of its own."""
    browser = Browser(folder)
    try:
        yield browser
    finally:
        browser.close()
