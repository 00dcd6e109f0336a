"""A headless Chromium driven over its debugging pipe, with the network blocked: the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def browser() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One open page. `requests` holds every URL it asked for that is no local file; `errors` what its scripts threw."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._next, self._buffer = read, write, 0, b""
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.session = ""

    def call(self, method: str, *, session: bool = True, **params: Any) -> Any:
        """The result of one protocol call."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if session and self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._message(30)
            if reply.get("id") == self._next:
                if "error" in reply:
                    raise AssertionError(f"{method}: {reply['error']}")
                return reply["result"]
            self._event(reply)

    def js(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    def press(self, element: str, key: str, times: int) -> None:
        """Presses a key on a focused element, as a person would move a slider with the keyboard."""
        self.js(f"document.getElementById({element!r}).focus()")
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35}
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def text(self, element: str) -> str:
        """The text of an element by id."""
        return str(self.js(f"document.getElementById({element!r}).textContent"))

    def screenshot(self, path: Path) -> None:
        """A PNG of the window."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _message(self, timeout_s: float) -> dict[str, Any]:
        end = time.monotonic() + timeout_s
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise AssertionError("the browser did not answer in time")
            block = os.read(self._read, 1 << 20)
            if not block:
                raise AssertionError("the browser closed its debugging pipe")
            self._buffer += block
        line, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(line))

    def _event(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:")):
                self.requests.append(url)
        elif event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])


@contextmanager
def open_page(file: Path, profile: Path, *, size: tuple[int, int] = (1200, 1100)) -> Iterator[Page]:
    """A page on a local file in a fresh browser without network; the browser ends with the block."""
    path = browser()
    assert path is not None, "no Chromium here"
    to_child, from_us = os.pipe()
    from_child, to_us = os.pipe()
    command = [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += ["--remote-debugging-pipe", f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
    # nothing outside resolves, whatever the page or the browser itself asks for
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking", "about:blank"]
    shell = f'exec "$@" 3<&{to_child} 4>&{to_us}'
    child = subprocess.Popen(
        ["bash", "-c", shell, "chromium", *command],
        pass_fds=(to_child, to_us),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_child)
    os.close(to_us)
    page = Page(from_child, from_us)
    try:
        target = page.call("Target.createTarget", url="about:blank", newWindow=True, width=size[0], height=size[1])[
            "targetId"
        ]
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        page.call("Page.navigate", url=file.absolute().as_uri())
        for _ in range(200):
            if page.js("document.readyState") == "complete":
                break
            time.sleep(0.05)
        # Chromium 150 forgets with the process of the first page what navigator.onLine shall say; older ones don't know this call.
        with suppress(AssertionError):
            page.call("Network.overrideNetworkState", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        yield page
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        os.close(from_us)
        os.close(from_child)
