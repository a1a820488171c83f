"""Mutated model files through the whole of Lite: loaded, compiled, run. Half of them have checksums that fit."""

from __future__ import annotations

import io
import random
import struct

from _common import DATA, limit_memory, mutate, xxh64

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


def main(budget: int, seed: int = 0) -> dict[str, int]:
    limit_memory()
    import megenginelite as lite

    good = (DATA / "lite" / "net_v1.mge").read_bytes()
    assert reseal(good) == good
    rng = random.Random(seed)
    counted = {"models": 0, "refused": 0, "run": 0}
    for i in range(budget):
        data = mutate(good, rng)
        if i % 2:
            data = reseal(data)
        counted["models"] += 1
        try:
            net = lite.LiteNetwork()
            net.load(io.BytesIO(data))
            for name in net.get_all_input_name():
                net.get_io_tensor(name).fill_zero()
            net.forward()
            net.wait()
            counted["run"] += 1
        except RuntimeError as e:
            assert str(e), "an error without a text"
            counted["refused"] += 1
    return counted
