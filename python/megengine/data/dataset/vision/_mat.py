"""Reading the one MATLAB file of ImageNet's devkit: a struct array of strings and numbers (MAT-file level 5)."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_UTF = {16: "utf-8", 17: "utf-16", 18: "utf-32"}
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _CHAR, _CELL = 2, 4, 1


def read_struct_array(data: bytes, name: str, source: str) -> list[dict[str, Any]]:
    """The elements of the struct array ``name``, each a dict of its fields."""
    try:
        if data[126:128] not in (b"IM", b"MI"):
            raise ValueError("no MAT-file header")
        reader = _Reader("<" if data[126:128] == b"IM" else ">")
        for found, value in reader.variables(data[128:]):
            if found == name:
                if not isinstance(value, list):
                    raise ValueError(f"{name} is not a struct array")
                return value
        raise ValueError(f"it has no variable {name}")
    except (ValueError, struct.error, zlib.error, KeyError, IndexError, RecursionError) as e:
        raise ValueError(f"{source}: not a MATLAB 5 file with {name!r}, or damaged: {e}.") from e


class _Reader:
    def __init__(self, endian: str) -> None:
        self._endian = endian

    def _unpack(self, layout: str, data: bytes, at: int) -> tuple[Any, ...]:
        return struct.unpack_from(self._endian + layout, data, at)

    def elements(self, data: bytes) -> Any:
        """(kind, bytes) of each data element; small ones keep their bytes in the tag."""
        at = 0
        while at + 8 <= len(data):
            (word,) = self._unpack("I", data, at)
            if word >> 16:
                kind, size, start, after = word & 0xFFFF, word >> 16, at + 4, at + 8
            else:
                kind, (size,), start = word, self._unpack("I", data, at + 4), at + 8
                # compressed elements are not padded to eight bytes
                after = start + size + (0 if kind == _COMPRESSED else -size % 8)
            if start + size > len(data):
                raise ValueError("an element goes past the end")
            yield kind, data[start : start + size]
            at = after

    def variables(self, data: bytes) -> Any:
        for kind, body in self.elements(data):
            if kind == _COMPRESSED:
                yield from self.variables(zlib.decompress(body))
            elif kind == _MATRIX:
                yield self._matrix(body)

    def _matrix(self, data: bytes) -> tuple[str, Any]:
        parts = list(self.elements(data))
        if not parts:
            return "", None
        array_class = self._unpack("I", parts[0][1], 0)[0] & 0xFF
        dims = self._numbers(*parts[1]).tolist()
        name = parts[2][1].decode("latin1")
        rest = parts[3:]
        if array_class == _STRUCT:
            return name, self._struct(rest)
        if array_class == _CELL:
            return name, [self._matrix(body)[1] for _, body in rest]
        if array_class == _CHAR:
            kind, body = rest[0] if rest else (16, b"")
            text = body.decode(_UTF[kind]) if kind in _UTF else "".join(map(chr, self._numbers(kind, body)))
            return name, text
        return name, self._numbers(*rest[0]).reshape(dims, order="F")

    def _struct(self, parts: list[tuple[int, bytes]]) -> list[dict[str, Any]]:
        (width,) = self._unpack("i", parts[0][1], 0)
        raw = parts[1][1]
        fields = [raw[i : i + width].split(b"\0")[0].decode("latin1") for i in range(0, len(raw), width)]
        values = [self._matrix(body)[1] for _, body in parts[2:]]
        return [dict(zip(fields, values[i : i + len(fields)])) for i in range(0, len(values), len(fields))]

    def _numbers(self, kind: int, body: bytes) -> Any:
        return np.frombuffer(body, self._endian + _NUMBERS[kind])
