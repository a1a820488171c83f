"""Plain data as text: what goes through the store. Reading never builds anything but data."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

_BYTES, _ARRAY = "__bytes__", "__array__"
_KINDS = "biufc"  # dtypes whose bytes are the value


def dumps(value: Any) -> str:
    """Text of None, booleans, numbers, strings, bytes, NumPy arrays, and lists, tuples and dicts of these.

    >>> from megengine.distributed._plain import dumps, loads
    >>> loads(dumps({"a": [1, (2.5, None)], "b": b"xy"}))
    {'a': [1, [2.5, None]], 'b': b'xy'}
    """
    return json.dumps(_plain(value))


def loads(text: str) -> Any:
    """The data of a text of ``dumps``; a tuple comes back as a list."""
    return json.loads(text, object_hook=_revive)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (bytes, bytearray)):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        return {_ARRAY: [value.dtype.str, list(value.shape), base64.b64encode(value.tobytes()).decode()]}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or key in (_BYTES, _ARRAY):
                raise TypeError(f"store: keys of a dict must be strings; got {key!r}.")
        return {key: _plain(v) for key, v in value.items()}
    raise TypeError(
        f"store: only plain data goes through it (None, bool, int, float, str, bytes, NumPy arrays, lists and dicts of "
        f"these); got a {type(value).__name__}. A Tensor goes as x.numpy()."
    )


def _revive(found: dict[str, Any]) -> Any:
    if _BYTES in found:
        return base64.b64decode(found[_BYTES])
    if _ARRAY in found:
        name, shape, data = found[_ARRAY]
        dtype = np.dtype(str(name))
        if dtype.kind not in _KINDS:
            raise ValueError(f"store: dtype {dtype} is not plain data.")
        return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
    return found
