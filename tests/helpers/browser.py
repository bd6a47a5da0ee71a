"""A page in headless Chromium, over the DevTools protocol: its complaints, its requests, its width."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and answers on 4.
_START = """
import os, sys
commands, answers, *program = sys.argv[1:]
os.dup2(int(commands), 3)
os.dup2(int(answers), 4)
os.execv(program[0], program)
"""


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, program: str, timeout: float = 60.0) -> None:
        self.timeout = timeout
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # The pair that Chromium gets must not lie on 3 and 4 itself, where one dup2 would overwrite the other.
        pair = [os.dup(descriptor) for descriptor in (commands, answers)]
        arguments = [program, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _START, *map(str, pair), *arguments],
            pass_fds=pair,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in (commands, answers, *pair):
            os.close(descriptor)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Shows a file in a window of this many CSS pixels and waits until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return result["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and what the browser itself logged."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"].get("text")))
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in (
                "error",
                "warning",
                "assert",
            ):
                found.append(" ".join(str(part.get("value")) for part in parameters["args"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def print_width(self, path: Path, width: int) -> int:
        """How wide the page comes out on paper of this many CSS pixels."""
        self.open(path, width)
        self.call("Emulation.setEmulatedMedia", media="print")
        wide = self.evaluate("document.documentElement.scrollWidth")
        self.call("Emulation.setEmulatedMedia", media="")
        return wide

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + self.timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser did not answer")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)
