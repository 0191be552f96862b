# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A headless Chromium for tests, driven through a pipe by the protocol of its developer tools.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0
# The descriptors that --remote-debugging-pipe reads from and writes to.
READS, WRITES = 3, 4
ABOVE = 100
NAMED_KEYS = {"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40, "Tab": 9}
NAMED_KEYS.update(ArrowLeft=37, ArrowRight=39, PageUp=33, PageDown=34)


def program() -> Optional[str]:
    """The browser of this machine; None where it has none."""
    return next((found for name in PROGRAMS for found in [shutil.which(name)] if found), None)


class Browser:
    """One page of a browser without a network. ``complaints`` are errors and warnings of its console, and exceptions;
    ``requests`` are the addresses that the page asked for, the page itself left out.
    """

    def __init__(self, executable: str, folder: Path, *, width: int = 1400, height: int = 900) -> None:
        to_it, from_it = _pipe(), _pipe()
        # As root it has no sandbox, and the only page that it opens is ours.
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options += ["--remote-debugging-pipe", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder}"]
        options += ["--no-first-run", "--disable-background-networking", f"--window-size={width},{height}"]

        def connect() -> None:
            os.dup2(to_it[0], READS)
            os.dup2(from_it[1], WRITES)

        self._process = subprocess.Popen(
            [executable, *options, "about:blank"],
            pass_fds=(READS, WRITES),
            preexec_fn=connect,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it[0])
        os.close(from_it[1])
        self._to, self._from = to_it[1], from_it[0]
        self._number = 0
        self._buffer = b""
        self.complaints: List[str] = []
        self.requests: List[str] = []
        self._loaded = False
        self._session: Optional[str] = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: Any) -> Dict[str, Any]:
        """A method of the protocol, and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: Dict[str, Any] = answer["result"]
                return result

    def open(self, path: Path, place: str = "") -> None:
        """Load a file and wait until it says that it is ready."""
        self._loaded = False
        self.call("Page.navigate", url=f"{path.as_uri()}{place}")
        self.until("'ready' in document.documentElement.dataset")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait for an expression to be true. The page draws meanwhile, so nothing is slept for."""
        frame = f"new Promise((done) => requestAnimationFrame(() => done(Boolean({expression}))))"
        end = time.monotonic() + SECONDS
        while not self.value(frame):
            assert time.monotonic() < end, f"never true: {expression}"

    def press(self, key: str, *, control: bool = False) -> None:
        """One key, as the keyboard sends it."""
        code = NAMED_KEYS.get(key, ord(key[0].upper()))
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 2 if control else 0}
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """The middle of the first element of a selector, with the mouse."""
        scroll = "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect()"
        middle = "[b.left + b.width / 2, b.top + b.height / 2]"
        place = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); {scroll}; return {middle}; }})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``, as the system of the reader says it."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def _receive(self) -> Dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _writable, _failed = select.select([self._from], [], [], SECONDS)
            assert ready, "the browser does not respond"
            chunk = os.read(self._from, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        line, _end, self._buffer = self._buffer.partition(b"\0")
        message: Dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, found: Dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(found["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(found["args"]))
        elif method == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(found["entry"]))
        elif method == "Network.requestWillBeSent" and found.get("type") != "Document":
            self.requests.append(found["request"]["url"])


def _pipe() -> Tuple[int, int]:
    """A pipe whose ends are out of the way of those that the browser wants."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, ABOVE))
        os.close(end)
    return ends[0], ends[1]
