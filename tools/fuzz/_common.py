"""What the attacks share."""

from __future__ import annotations

import random
import resource
import struct
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent.parent / "tests" / "data"
_MASK = (1 << 64) - 1
_P = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def limit_memory(gigabytes: int = 8) -> None:
    """A hostile size must meet a limit, not swallow the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (gigabytes << 30, gigabytes << 30))


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, cut out, repeated or moved."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not out:
            break
        at = rng.randrange(len(out))
        size = min(rng.choice((1, 2, 4, 8, 32)), len(out) - at)
        kind = rng.randrange(6)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at : at + size] = rng.randbytes(size)
        elif kind == 2:
            out[at : at + size] = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * size
        elif kind == 3:
            del out[at : at + size]
        elif kind == 4:
            out[at:at] = out[at : at + size]
        else:
            other = rng.randrange(len(out))
            out[at : at + size] = out[other : other + size]
    return bytes(out)


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P[1]) & _MASK, 31) * _P[0] & _MASK


def xxh64(data: bytes) -> int:
    """The checksum of model files."""
    at, h = 0, _P[4]
    if len(data) >= 32:
        lanes = [(_P[0] + _P[1]) & _MASK, _P[1], 0, -_P[0] & _MASK]
        for words in struct.iter_unpack("<4Q", data[: len(data) // 32 * 32]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, words)]
        at = len(data) // 32 * 32
        h = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            h = ((h ^ _round(0, lane)) * _P[0] + _P[3]) & _MASK
    h = (h + len(data)) & _MASK
    while at + 8 <= len(data):
        h = (_rotate(h ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P[0] + _P[3]) & _MASK
        at += 8
    if at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        h = (_rotate(h ^ (word * _P[0] & _MASK), 23) * _P[1] + _P[2]) & _MASK
        at += 4
    for byte in data[at:]:
        h = _rotate(h ^ (byte * _P[4] & _MASK), 11) * _P[0] & _MASK
    h = (h ^ h >> 33) * _P[1] & _MASK
    h = (h ^ h >> 29) * _P[2] & _MASK
    return h ^ h >> 32


_HEADER = struct.Struct("<8sIIQQ")
_SECTION = struct.Struct("<IIQQQ")


def reseal(data: bytes) -> bytes:
    """The same with checksums that fit, as far as its table can be followed."""
    out = bytearray(data)
    if len(out) < _HEADER.size:
        return data
    magic, version, count, _, _ = _HEADER.unpack_from(out)
    table = _HEADER.size + count * _SECTION.size
    if count > 64 or table > len(out):
        return data
    for k in range(count):
        at = _HEADER.size + k * _SECTION.size
        kind, flags, offset, size, _ = _SECTION.unpack_from(out, at)
        if offset + size <= len(out):
            _SECTION.pack_into(out, at, kind, flags, offset, size, xxh64(bytes(out[offset : offset + size])))
    head = _HEADER.pack(magic, version, count, len(out), 0)[:24]
    out[:24] = head
    out[24:32] = xxh64(head + bytes(out[_HEADER.size : table])).to_bytes(8, "little")
    return bytes(out)
