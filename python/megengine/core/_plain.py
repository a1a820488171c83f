"""Plain data as text: what a model file may carry for its user. Nothing in it can name code.

JSON, with one-entry objects ``{"$bytes": …}``, ``{"$tuple": …}``, ``{"$array": …}``, ``{"$dict": …}`` and
``{"$complex": …}`` for what JSON has not.

>>> from megengine.core._plain import decode, encode
>>> decode(encode({"classes": ("cat", "dog"), "mean": 0.5, 3: b"key"}))
{'classes': ('cat', 'dog'), 'mean': 0.5, 3: b'key'}
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

__all__ = ["NotPlain", "decode", "encode"]

_DTYPES = "biufc"


class NotPlain(TypeError):
    """Something that is not plain data; the text says where it stands."""


def _pack(x: Any, where: str, above: tuple[int, ...]) -> Any:
    if x is None or isinstance(x, (bool, str)) or type(x) is int:
        return x
    if type(x) is float:
        return x if math.isfinite(x) else {"$float": str(x)}
    if type(x) is complex:
        return {"$complex": [x.real, x.imag]}
    if isinstance(x, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(x).decode("ascii")}
    if isinstance(x, (np.ndarray, np.generic)) and np.asarray(x).dtype.kind in _DTYPES:
        a = np.asarray(x, order="C")
        kind = "$array" if isinstance(x, np.ndarray) else "$scalar"
        little = a.astype(a.dtype.newbyteorder("<"))
        return {kind: [little.dtype.str, list(a.shape), base64.b64encode(little.tobytes()).decode("ascii")]}
    if id(x) in above:
        raise NotPlain(f"{where} holds itself")
    above = (*above, id(x))
    if type(x) in (list, tuple):
        items = [_pack(v, f"{where}[{i}]", above) for i, v in enumerate(x)]
        return items if type(x) is list else {"$tuple": items}
    if isinstance(x, dict):
        if all(isinstance(k, str) and not k.startswith("$") for k in x):
            return {k: _pack(v, f"{where}[{k!r}]", above) for k, v in x.items()}
        pairs = ((_pack(k, f"a key of {where}", above), _pack(v, f"{where}[{k!r}]", above)) for k, v in x.items())
        return {"$dict": [list(pair) for pair in pairs]}
    raise NotPlain(f"{where} is a {type(x).__module__}.{type(x).__qualname__}")


def _unpack(x: Any) -> Any:
    if isinstance(x, list):
        return [_unpack(v) for v in x]
    if not isinstance(x, dict):
        return x
    if len(x) != 1 or not next(iter(x)).startswith("$"):
        return {k: _unpack(v) for k, v in x.items()}
    ((kind, value),) = x.items()
    if kind == "$float":
        return float(value)
    if kind == "$complex":
        return complex(*value)
    if kind == "$bytes":
        return base64.b64decode(value, validate=True)
    if kind in ("$array", "$scalar"):
        text, shape, data = value
        dtype = np.dtype(text)
        if dtype.kind not in _DTYPES:
            raise ValueError(f"an array of {dtype}")
        array = np.frombuffer(base64.b64decode(data, validate=True), dtype).reshape(shape).copy()
        return array if kind == "$array" else array[()]
    if kind == "$tuple":
        return tuple(_unpack(v) for v in value)
    if kind == "$dict":
        return {_unpack(k): _unpack(v) for k, v in value}
    raise ValueError(f"{kind} is of a newer version")


def encode(x: Any) -> str:
    """The text of plain data: None, bool, numbers, str, bytes, NumPy arrays of numbers, and list, tuple, dict of those.

    Raises:
        NotPlain: for anything else, with the place where it stands.
    """
    return json.dumps(_pack(x, "it", ()), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode(text: str) -> Any:
    """What :func:`encode` made the text of; ValueError for another text."""
    try:
        return _unpack(json.loads(text))
    except (TypeError, ValueError, RecursionError) as e:
        raise ValueError(f"not the plain data of a model file: {e}") from None
