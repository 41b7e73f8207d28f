"""Headless Chromium through its debugging pipe: enough to open a page, ask it and look at it."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
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
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """The browser of this machine, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page; `errors` collects what its console complains about."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self._size = width, height
        self._folder = tempfile.TemporaryDirectory(prefix="advisor-chromium-", ignore_cleanup_errors=True)
        self._next = 0
        self._buffer = b""
        self.errors: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> Self:
        browser = find()
        assert browser is not None
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # Chromium reads commands from 3 and answers on 4; spare numbers keep the two apart.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands, answers)]
        self._pid = os.posix_spawn(
            browser,
            [browser, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, ends[0], 3),
                (os.POSIX_SPAWN_DUP2, ends[1], 4),
            ],
        )
        for end in (commands, answers, *ends):
            os.close(end)
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(*self._size)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._write)  # Chromium goes when nobody can command it any more
        deadline = time.monotonic() + 10
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
            time.sleep(0.02)
        os.close(self._read)
        self._folder.cleanup()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """A command and its answer; events that come in between are noted."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._next:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._read, 1 << 16)
            assert chunk, "the browser went away"
            self._buffer += chunk
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(" ".join(str(a.get("value", a)) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, page: Path) -> float:
        """Load a file; returns the seconds until its scripts have run and it has been painted."""
        start = time.perf_counter()
        self.send("Page.navigate", url=page.resolve().as_uri())
        deadline = start + 300
        while not self.ask("document.documentElement?.dataset.ready"):
            assert time.perf_counter() < deadline, f"{page} did not get ready: {self.errors}"
            time.sleep(0.005)
        self.ask("new Promise(r => requestAnimationFrame(() => setTimeout(r)))")
        return time.perf_counter() - start

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def media(self, kind: str = "", scheme: str = "light") -> None:
        """Emulate print, or a preference for light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", media=kind, features=features)

    def key(self, key: str) -> None:
        text = key if len(key) == 1 else ""
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """``mouse("mouseMoved", x, y)``; also mousePressed, mouseReleased."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, target: Path, top: int = 0, height: int | None = None) -> None:
        """The page from `top` on; the whole of it without a height."""
        width = self.ask("document.documentElement.clientWidth")
        whole = self.ask("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": top, "width": width, "height": height or whole - top, "scale": 1}
        answer = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        target.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self, target: Path) -> None:
        answer = self.send("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        target.write_bytes(base64.b64decode(answer["data"]))
