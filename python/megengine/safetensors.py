"""Reading and writing ``.safetensors`` files: named arrays, no code, readable by other frameworks.

A file is the length of a header (8 bytes, little-endian), the header as JSON, and the arrays one after the other.
The reader trusts nothing: sizes, offsets, names and types are checked before an array is made.

>>> import tempfile, os
>>> from megengine import safetensors
>>> path = os.path.join(tempfile.mkdtemp(), "net.safetensors")
>>> net = M.Linear(2, 3)
>>> safetensors.save_file(net.state_dict(), path, metadata={"epoch": "4"})
>>> net.load_state_dict(safetensors.load_file(path))
>>> safetensors.load_metadata(path)
{'epoch': '4'}
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from .core._core import UserError
from .core.files import replacing
from .core.tensor.dtype import bfloat16, is_lowbit, is_quantize
from .tensor import Tensor

__all__ = ["SafetensorsError", "load", "load_file", "load_metadata", "save", "save_file"]

_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": bfloat16,
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("bool"),
}
_NAMES = {d: n for n, d in _DTYPES.items()}
# The limit of the format's reference reader: a header past it is an attack or damage.
_MAX_HEADER = 100_000_000
_METADATA = "__metadata__"


class SafetensorsError(ValueError):
    """The file breaks a rule of the format."""


@dataclass(frozen=True)
class _Entry:
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


# ---- reading


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise SafetensorsError(f"safetensors: the header names {key!r} twice.")
        out[key] = value
    return out


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _entry(name: str, info: Any) -> _Entry:
    def bad(why: str) -> SafetensorsError:
        return SafetensorsError(f"safetensors: tensor {name!r} {why}.")

    if not isinstance(info, dict) or set(info) != {"dtype", "shape", "data_offsets"}:
        raise bad("needs exactly dtype, shape and data_offsets")
    kind, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if not isinstance(kind, str) or kind not in _DTYPES:
        raise bad(f"has dtype {kind!r}; known are {', '.join(_DTYPES)}")
    if not isinstance(shape, list) or not all(_is_size(d) for d in shape):
        raise bad(f"has the shape {shape!r}, which is not a list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(o) for o in offsets):
        raise bad(f"has the data_offsets {offsets!r}, which are not two positions")
    begin, end = offsets
    size = prod(shape) * _DTYPES[kind].itemsize
    if end - begin != size:
        raise bad(f"takes {size} bytes as {kind} {shape}, but its data_offsets {offsets} span {end - begin}")
    return _Entry(name, _DTYPES[kind], tuple(shape), begin, end)


def _read_header(f: IO[bytes], file_size: int) -> tuple[list[_Entry], dict[str, str], int]:
    """Entries in the order of their data, the metadata, and where the data starts; everything is checked."""
    head = f.read(8)
    if len(head) < 8:
        raise SafetensorsError(f"safetensors: the file has {file_size} bytes, too few for a header.")
    length = int.from_bytes(head, "little")
    if length > _MAX_HEADER or length > file_size - 8:
        raise SafetensorsError(
            f"safetensors: a header of {length} bytes does not fit a file of {file_size}; damaged, or another format."
        )
    text = f.read(length)
    if not text.startswith(b"{"):
        raise SafetensorsError("safetensors: the header does not start with '{'; damaged, or another format.")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as e:
        raise SafetensorsError(f"safetensors: the header is not JSON ({e}).") from None
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise SafetensorsError("safetensors: __metadata__ must map strings to strings.")
    entries = sorted((_entry(n, i) for n, i in header.items()), key=lambda entry: (entry.begin, entry.end))
    at = 0
    for entry in entries:
        gap = entry.begin - at
        if gap:
            what = "overlaps the tensor before it" if gap < 0 else f"leaves {gap} unused bytes before it"
            raise SafetensorsError(f"safetensors: tensor {entry.name!r} {what} (at {entry.begin}, expected {at}).")
        at = entry.end
    start = 8 + length
    if start + at != file_size:
        raise SafetensorsError(
            f"safetensors: the header describes {at} bytes of data, the file holds {file_size - start}; "
            + ("it was cut short." if start + at > file_size else "the rest is not accounted for.")
        )
    return entries, metadata, start


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _read_array(f: IO[bytes], entry: _Entry) -> npt.NDArray[Any]:
    raw = np.empty(entry.end - entry.begin, dtype=np.uint8)
    view = raw.data
    at = 0
    while at < len(raw):
        got = f.readinto(view[at:])  # type: ignore[attr-defined]
        if not got:
            raise SafetensorsError(f"safetensors: the data of tensor {entry.name!r} ended early.")
        at += got
    if entry.dtype == np.dtype("bool") and (raw > 1).any():
        raise SafetensorsError(f"safetensors: tensor {entry.name!r} is BOOL but holds bytes other than 0 and 1.")
    return _native(raw.view(entry.dtype).reshape(entry.shape))


@contextmanager
def _opened(f: Any) -> Iterator[tuple[IO[bytes], int]]:
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            yield file, os.fstat(file.fileno()).st_size
        return
    here = f.tell()
    size = f.seek(0, os.SEEK_END) - here
    f.seek(here)
    yield f, size


def load_file(f: Any, device: str | None = None) -> dict[str, Any]:
    """Read all arrays of a file.

    Args:
        f: a path, or a binary file that can seek.
        device: None gives NumPy arrays, which ``Module.load_state_dict`` takes; a device name gives tensors there,
            with MegEngine's rules for dtypes (float64 becomes float32, int64 int32).

    Returns:
        Arrays or tensors by name, in the order of the file.

    >>> import io
    >>> from megengine import safetensors
    >>> data = safetensors.save({"w": mge.tensor([1.0, 2.0])})
    >>> safetensors.load_file(io.BytesIO(data), device="cpu0")
    {'w': Tensor([1. 2.], device=cpu0:0)}
    """
    with _opened(f) as (file, size):
        entries, _, _ = _read_header(file, size)
        arrays = {e.name: _read_array(file, e) for e in entries}
    if device is None:
        return arrays
    return {n: _tensor(n, a, device) for n, a in arrays.items()}


def _tensor(name: str, array: Any, device: str) -> Tensor:
    try:
        return Tensor(array, device=device)
    except UserError as e:
        raise UserError(f"safetensors: {name!r}: {e} Or read arrays, with device=None.") from None


def load(data: bytes, device: str | None = None) -> dict[str, Any]:
    """The same as ``load_file``, from bytes.

    >>> from megengine import safetensors
    >>> safetensors.load(safetensors.save({"a": np.arange(3)}))
    {'a': array([0, 1, 2])}
    """
    from io import BytesIO

    return load_file(BytesIO(data), device)


def load_metadata(f: Any) -> dict[str, str]:
    """The texts stored beside the arrays; no array is read."""
    with _opened(f) as (file, size):
        return _read_header(file, size)[1]


# ---- writing


def _plain(name: Any, value: Any) -> tuple[str, npt.NDArray[Any]]:
    """The format's dtype name and a contiguous little-endian array."""
    if not isinstance(name, str) or name == _METADATA:
        raise TypeError(f"safetensors: names must be strings other than {_METADATA}; got {name!r}.")
    array = value.numpy() if isinstance(value, Tensor) else value
    if not isinstance(array, (np.ndarray, np.generic)):
        raise TypeError(
            f"safetensors: {name!r} must be a tensor or an array; got {type(value).__name__}. "
            "Nested containers need flat names, other values go into metadata as strings."
        )
    array = np.asarray(array)
    if is_quantize(array.dtype) or is_lowbit(array.dtype):
        raise TypeError(
            f"safetensors: {name!r} has a quantised dtype, which the format cannot hold; use megengine.save."
        )
    little = array.dtype.newbyteorder("<") if array.dtype.byteorder == ">" else array.dtype
    if little not in _NAMES:
        raise TypeError(f"safetensors: {name!r} has dtype {array.dtype}, which the format cannot hold.")
    return _NAMES[little], np.require(array, dtype=little, requirements="C")


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file that holds these tensors or arrays.

    Args:
        tensors: tensors or arrays by name; ``Module.state_dict()`` is the usual case.
        metadata: texts by name.

    >>> from megengine import safetensors
    >>> len(safetensors.save({"a": np.zeros(4, "float32")}))
    80
    """
    plain = {n: _plain(n, v) for n, v in tensors.items()}
    metadata = dict(metadata or {})
    if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
        raise TypeError(f"safetensors: metadata must map strings to strings; got {metadata!r}.")
    header: dict[str, Any] = {_METADATA: metadata} if metadata else {}
    parts: list[bytes] = []
    at = 0
    # Wide elements first, so that every array is aligned to its element size.
    for name, (kind, array) in sorted(plain.items(), key=lambda item: (-item[1][1].itemsize, item[0])):
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        parts.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def save_file(tensors: Mapping[str, Any], f: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors or arrays to a file; see ``save``.

    Args:
        tensors: tensors or arrays by name.
        f: a path, or an object with ``write``. A file under a path is replaced only when all is written.
        metadata: texts by name.
    """
    data = save(tensors, metadata)
    if hasattr(f, "write"):
        f.write(data)
        return
    with replacing(f) as out:
        out.write(data)
