"""Decoding image files: OpenCV where it is installed, Pillow otherwise."""

from __future__ import annotations

import importlib
import io
import zlib
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_modules: dict[str, Any] = {}


def optional(name: str) -> Any:
    """The module, or None when it is not installed."""
    if name not in _modules:
        try:
            _modules[name] = importlib.import_module(name)
        except ImportError:
            _modules[name] = None
    return _modules[name]


def needs_cv2(what: str) -> Any:
    """OpenCV, or an error that says how to get it."""
    cv2 = optional("cv2")
    if cv2 is None:
        raise ImportError(f"{what}: needs OpenCV, which is not installed. pip install 'megengine[vision]'")
    return cv2


def read_image(path: str) -> Array:
    """A file as uint8 [height, width, 3], channels in the order blue, green, red."""
    with open(path, "rb") as f:
        return decode_image(f.read(), path)


def read_labels(path: str) -> Array:
    """A one-channel file as [height, width]: the values as they are, the palette's index for a palette image."""
    with open(path, "rb") as f:
        data = f.read()
    _check_whole(data, path)
    pillow = optional("PIL.Image")
    if pillow is not None and _is_palette_png(data):
        return np.array(_pillow(pillow, data, path))
    cv2 = optional("cv2")
    if cv2 is not None:
        image = _cv2_decode(cv2, data, cv2.IMREAD_UNCHANGED, path)
    else:
        image = np.array(_pillow(_any_decoder(path), data, path))
    if image.ndim != 2:
        raise ValueError(f"{path}: needs an image with one channel; got shape {image.shape}.")
    return image


def decode_image(data: bytes, source: str) -> Array:
    """Bytes of an image file as uint8 [height, width, 3] in BGR; ``source`` is named in errors."""
    _check_whole(data, source)
    cv2 = optional("cv2")
    if cv2 is not None:
        return _cv2_decode(cv2, data, cv2.IMREAD_COLOR, source)
    pillow = _any_decoder(source)
    turn = importlib.import_module("PIL.ImageOps").exif_transpose
    rgb = np.array(turn(_pillow(pillow, data, source)).convert("RGB"))
    return np.ascontiguousarray(rgb[:, :, ::-1])


def _any_decoder(source: str) -> Any:
    pillow = optional("PIL.Image")
    if pillow is None:
        raise ImportError(f"{source}: reading images needs OpenCV or Pillow. pip install 'megengine[vision]'")
    return pillow


def _cv2_decode(cv2: Any, data: bytes, flags: int, source: str) -> Array:
    try:
        image: Array | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if data else None
    except cv2.error as e:
        raise ValueError(f"{source}: cannot be decoded ({e}).") from None
    if image is None:
        raise ValueError(f"{source}: not an image that can be decoded ({len(data)} bytes).")
    return image


def _pillow(pillow: Any, data: bytes, source: str) -> Any:
    try:
        image = pillow.open(io.BytesIO(data))
        image.load()
        return image
    except Exception as e:
        raise ValueError(f"{source}: not an image that can be decoded ({len(data)} bytes; {e}).") from None


# Decoders fill what is missing of a JPEG or PNG with grey and go on, so damage is looked for here.


def _check_whole(data: bytes, source: str) -> None:
    if data.startswith(b"\xff\xd8"):
        _check_jpeg(data, source)
    elif data.startswith(b"\x89PNG\r\n\x1a\n"):
        _check_png(data, source)


def _check_jpeg(data: bytes, source: str) -> None:
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        if data[at + 1] == 0xFF:  # padding
            at += 1
            continue
        if data[at + 1] == 0xDA:  # the picture itself: 0xff is escaped in it, so only the end marker reads ff d9
            if data.find(b"\xff\xd9", at) >= 0:
                return
            break
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    raise ValueError(f"{source}: the JPEG data is cut short or damaged ({len(data)} bytes, no end marker).")


def _check_png(data: bytes, source: str) -> None:
    at = 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        end = at + 8 + size
        if end + 4 > len(data):
            break
        if zlib.crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise ValueError(f"{source}: the PNG data is damaged (checksum of chunk {kind.decode('latin1')!r}).")
        if kind == b"IEND":
            return
        at = end + 4
    raise ValueError(f"{source}: the PNG data is cut short ({len(data)} bytes, no end chunk).")


def _is_palette_png(data: bytes) -> bool:
    return data.startswith(b"\x89PNG") and data[25:26] == b"\x03"
