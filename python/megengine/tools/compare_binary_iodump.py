"""Compare the values that two runs dumped (Lite's ``io_bin_dump``, ``load_and_run --bin_out_dump``), file by file."""

from __future__ import annotations

import os
import struct
import sys
import textwrap
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ._command import Parser, UsageError, existing, run

#: dtypes by the number that a file has for them
_DTYPES = {
    0: np.float32, 1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 9: np.float16, 12: np.bool_, 13: np.uint16,
    14: np.complex64, 100000: np.uint8, 100001: np.int32, 100002: np.int8, 100005: np.int16,
    200000: np.float64, 200001: np.int64,
}  # fmt: skip


def load_tensor_binary(fobj: IO[bytes]) -> tuple[npt.NDArray[Any], str]:
    """One dumped tensor and what is known of it. Numbers of quantised dtypes are given as they are stored."""
    who = getattr(fobj, "name", "the file")

    def read(n: int) -> bytes:
        data = fobj.read(n)
        if len(data) != n:
            raise ValueError(f"load_tensor_binary: {who} ends too early")
        return data

    name_len, dtype, ndim = struct.unpack("<3I", read(12))
    if dtype not in _DTYPES:
        raise ValueError(f"load_tensor_binary: {who} is no dumped tensor: dtype number {dtype} is unknown")
    if ndim > 64 or name_len > 1 << 24:
        raise ValueError(
            f"load_tensor_binary: {who} is no dumped tensor: {ndim} dimensions, a name of {name_len} bytes"
        )
    shape = [n for n in struct.unpack(f"<{ndim}I", read(4 * ndim)) if n]
    name = read(name_len).decode("ascii", "replace")
    data: npt.NDArray[Any] = np.frombuffer(fobj.read(), _DTYPES[dtype])
    count = int(np.prod(shape)) if shape else data.size
    if data.size != count:
        raise ValueError(f"load_tensor_binary: {who} holds {data.size} numbers, its sizes {shape} ask for {count}")
    return data.reshape(shape or data.shape), name


def check(v0: Any, v1: Any, name: str, max_err: float) -> None:
    """An AssertionError that says how far the two are apart; the error of two numbers is |a - b| / max(|a|, |b|, 1)."""
    v0, v1 = np.ascontiguousarray(v0, np.float32), np.ascontiguousarray(v1, np.float32)
    assert v0.shape == v1.shape, f"{name} shape mismatch: {v0.shape} vs {v1.shape}"
    assert np.isfinite(v0).all() and np.isfinite(v1).all(), f"{name} not finite: sum={v0.sum()} vs sum={v1.sum()}"
    error = np.abs(v0 - v1) / np.maximum(np.maximum(np.abs(v0), np.abs(v1)), 1)
    if error.size and error.max() > max_err:
        at = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
        raise AssertionError(
            f"{name} not equal: shape={v0.shape} nonequal_idx={at} v0={float(v0[at])} v1={float(v1[at])} "
            f"err={float(error[at])}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 1 when something differs."""
    parser = Parser("compare_binary_iodump", __doc__)
    parser.add_argument("input0", help="a dumped file, or the folder of a run")
    parser.add_argument("input1", help="what it is compared with")
    parser.add_argument("-e", "--max-err", type=float, default=1e-3, help="error that is still equal")
    parser.add_argument("-s", "--stop-on-error", action="store_true", help="stop at the first that differs")
    args = parser.parse_args(argv)
    sides = [existing(p, "file or folder") for p in (args.input0, args.input1)]
    if os.path.isdir(sides[0]) != os.path.isdir(sides[1]):
        raise UsageError("a file is compared with a file, a folder with a folder")
    pairs = [(sides[0], sides[1])]
    status = 0
    if os.path.isdir(sides[0]):
        names = [set(os.listdir(s)) for s in sides]
        for name in sorted(names[0] ^ names[1]):
            print(f"{name}: only in {sides[0] if name in names[0] else sides[1]}")
            status = 1
        pairs = [(os.path.join(sides[0], n), os.path.join(sides[1], n)) for n in sorted(names[0] & names[1])]
    for a, b in pairs:
        with open(a, "rb") as f, open(b, "rb") as g:
            (v0, name0), (v1, name1) = load_tensor_binary(f), load_tensor_binary(g)
        title = f"{a}: \n{_wrapped(name0)}\n{_wrapped(name1)}\n"
        try:
            check(v0, v1, title, args.max_err)
        except AssertionError as e:
            print(e)
            status = 1
            if args.stop_on_error:
                break
    return status


def _wrapped(text: str) -> str:
    return "\n  ".join(textwrap.wrap(text, 70, break_on_hyphens=False, drop_whitespace=False)) or text


if __name__ == "__main__":
    sys.exit(run("compare_binary_iodump", main))
