"""A headless Chromium driven over the DevTools protocol, with nothing but the standard library.

with Browser() as b:
    b.open(page)
    b.click(*b.js("graphView.pane.place(3)"))
    png = b.screenshot()
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

_WAIT = 60.0  # seconds, on a busy machine


def chromium() -> str:
    """The browser; `make .stamps/apt-browser` installs it."""
    path = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    assert path, "no Chromium on this machine: make .stamps/apt-browser installs it"
    return path


class Browser:
    """One page of one browser."""

    def __init__(self, width: int = 1400, height: int = 900) -> None:
        self._folder = tempfile.mkdtemp(prefix="mge-browser-")
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        flags += ["--disable-background-networking", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
        flags += [f"--user-data-dir={self._folder}", f"--window-size={width},{height}"]
        self._process = subprocess.Popen(
            [chromium(), *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- the protocol

    def _connect(self) -> None:
        file = Path(self._folder, "DevToolsActivePort")
        end = time.monotonic() + _WAIT
        while not (file.exists() and file.read_text().count("\n")):
            assert self._process.poll() is None and time.monotonic() < end, "the browser did not start"
            time.sleep(0.05)
        port = int(file.read_text().split()[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=_WAIT) as f:
            page = next(t for t in json.load(f) if t["type"] == "page")
        path = page["webSocketDebuggerUrl"].split("/", 3)[3]
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_WAIT)
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self._socket.sendall(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._socket.recv(1)
        assert b" 101 " in answer, answer
        self._calls = 0
        self.errors: list[str] = []  # what the page threw or logged as an error
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.requests: list[str] = []  # what it asked the network for

    def call(self, method: str, **params: Any) -> Any:
        """A method of the protocol; events that come meanwhile are noted."""
        self._calls += 1
        data = json.dumps({"id": self._calls, "method": method, "params": params}).encode()
        mask, n = os.urandom(4), len(data)
        size = struct.pack("!B", 0x80 | n) if n < 126 else struct.pack("!BH", 0xFE, n)
        size = struct.pack("!BQ", 0xFF, n) if n >= 1 << 16 else size
        body = bytes(c ^ mask[i % 4] for i, c in enumerate(data))
        self._socket.sendall(b"\x81" + size + mask + body)
        while True:
            message = self._receive()
            if message.get("id") == self._calls:
                assert "error" not in message, (method, message)
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        kind, params = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif kind == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif kind == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def _receive(self) -> dict[str, Any]:
        data, last = b"", False
        while not last:
            first, size = self._read(2)
            last, size = bool(first & 0x80), size & 0x7F
            if size >= 126:
                size = struct.unpack("!H" if size == 126 else "!Q", self._read(2 if size == 126 else 8))[0]
            data += self._read(size)
        message: dict[str, Any] = json.loads(data)
        return message

    def _read(self, n: int) -> bytes:
        parts = b""
        while len(parts) < n:
            part = self._socket.recv(n - len(parts))
            assert part, "the browser closed the connection"
            parts += part
        return parts

    # ---- what a user does

    def open(self, page: Path | str) -> None:
        url = Path(page).resolve().as_uri()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + _WAIT
        while not self.js(f"location.href === {json.dumps(url)} && document.documentElement?.dataset?.ready === '1'"):
            assert time.monotonic() < end and not self.errors, f"the page did not get ready: {self.errors}"
            time.sleep(0.05)

    def js(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def frame(self) -> None:
        """Until what was changed is drawn."""
        self.js("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")

    def click(self, x: float, y: float, count: int = 1) -> None:
        for k in range(1, count + 1):
            for what in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", clickCount=k)
        self.frame()

    def wheel(self, x: float, y: float, delta: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)
        self.frame()

    def drag(self, x: float, y: float, to_x: float, to_y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
        for k in (0.5, 1.0):
            at = {"x": x + (to_x - x) * k, "y": y + (to_y - y) * k}
            self.call("Input.dispatchMouseEvent", type="mouseMoved", button="left", buttons=1, **at)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=to_x, y=to_y, button="left", clickCount=1)
        self.frame()

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)
        self.frame()

    def press(self, key: str, code: int) -> None:
        for what in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=what, key=key, windowsVirtualKeyCode=code)
        self.frame()

    def dark(self, on: bool = True) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.frame()

    def screenshot(self) -> bytes:
        self.frame()
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


def png_pixels(data: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and the rows of a PNG of 8 bits a channel, three bytes a pixel."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, width, height, channels = 8, b"", 0, 0, 3
    while at < len(data):
        (n,), kind = struct.unpack("!I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + n]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack("!IIBB", body[:10])
            assert depth == 8 and color in (2, 6), (depth, color)
            channels = 3 if color == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + n
    raw, stride, rows = zlib.decompress(packed), width * channels, []
    before = bytearray(stride)
    for y in range(height):
        filter_, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for x in range(stride):
            a = line[x - channels] if x >= channels else 0
            b, c = before[x], before[x - channels] if x >= channels else 0
            if filter_ == 1:
                line[x] = (line[x] + a) & 255
            elif filter_ == 2:
                line[x] = (line[x] + b) & 255
            elif filter_ == 3:
                line[x] = (line[x] + (a + b) // 2) & 255
            elif filter_ == 4:
                p = a + b - c
                pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
                line[x] = (line[x] + (a if pa <= pb and pa <= pc else b if pb <= pc else c)) & 255
        before = line
        rows.append(bytes(line) if channels == 3 else b"".join(line[i : i + 3] for i in range(0, stride, 4)))
    return width, height, rows
