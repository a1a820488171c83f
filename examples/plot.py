"""A line chart as PNG with nothing but NumPy and zlib, so that the examples need no plotting package."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

# 3x5 pixel glyphs, rows from top, bits from left
_GLYPHS = {
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711", "5": "74717", "6": "74757", "7": "71111",
    "8": "75757", "9": "75717", ".": "00002", "-": "00700", " ": "00000",
}  # fmt: skip
_COLOURS = [(31, 119, 180), (214, 96, 20), (44, 140, 60)]


def _text(img: np.ndarray, x: int, y: int, text: str, scale: int = 2) -> None:
    for ch in text:
        for row, bits in enumerate(_GLYPHS.get(ch, _GLYPHS[" "])):
            for col in range(3):
                if int(bits) >> (2 - col) & 1:
                    img[y + row * scale : y + (row + 1) * scale, x + col * scale : x + (col + 1) * scale] = 70
        x += 4 * scale


def line_chart(path: str, series: Mapping[str, Sequence[float]], width: int = 720, height: int = 400) -> None:
    """Writes one line per series over its index. Values must be finite."""
    img = np.full((height, width, 3), 255, np.uint8)
    left, right, top, bottom = 70, width - 20, 20, height - 40
    every = np.concatenate([np.asarray(s, np.float64) for s in series.values()])
    if every.size == 0 or not np.isfinite(every).all():
        raise ValueError("line_chart: every series needs finite values")
    lo, hi = float(every.min()), float(every.max())
    hi = hi if hi > lo else lo + 1
    longest = max(len(s) for s in series.values())
    for k in range(5):
        y = round(bottom - (bottom - top) * k / 4)
        img[y, left:right] = 225
        _text(img, 8, y - 6, f"{lo + (hi - lo) * k / 4:.2f}")
        _text(img, round(left + (right - left) * k / 4) - 8, bottom + 12, str(round((longest - 1) * k / 4)))
    img[top:bottom, left] = img[bottom, left:right] = 120
    for colour, values in zip(_COLOURS, series.values(), strict=False):
        v = np.asarray(values, np.float64)
        if len(v) < 2:
            continue
        xs = np.linspace(left, right - 1, max(len(v), (right - left) * 4))
        ys = np.interp(np.linspace(0, len(v) - 1, len(xs)), np.arange(len(v)), v)
        px, py = np.round(xs).astype(int), np.round(bottom - (ys - lo) / (hi - lo) * (bottom - top)).astype(int)
        for x0, y0, y1 in zip(px[1:], py[:-1], py[1:], strict=True):  # a vertical stroke joins neighbouring points
            img[min(y0, y1) : max(y0, y1) + 2, x0] = colour
    raw = b"".join(b"\0" + row.tobytes() for row in img)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with open(path, "wb") as f:
        f.write(
            b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
        )
