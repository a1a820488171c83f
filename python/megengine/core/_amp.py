"""Mixed precision: what this thread has set. Which op casts to what is a property of the op (``OpDef::amp``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from .tensor.dtype import bfloat16

_FLOATS = ("float16", "bfloat16", "float32")


def enabled() -> bool:
    """Whether ops of this thread cast now."""
    return bool(_core.mode_word() & _core.MODE_AUTOCAST)


def set_enabled(value: bool) -> bool:
    """Switch casting on or off for this thread; returns what it was, as the other two setters do."""
    old, word = enabled(), _core.mode_word() & ~_core.MODE_AUTOCAST
    _core.set_mode_word(word | (_core.MODE_AUTOCAST if value else 0))
    return old


def low_prec_dtype() -> str:
    """The dtype of products and convolutions."""
    return _core.autocast_dtypes()[0]


def high_prec_dtype() -> str:
    """The dtype of sensitive ops."""
    return _core.autocast_dtypes()[1]


def set_low_prec_dtype(name: Any) -> str:
    """Set the dtype of products and convolutions: float16 or bfloat16."""
    low, high = _core.autocast_dtypes()
    _core.set_autocast_dtypes(_checked(name, "low_prec_dtype"), high)
    return low


def set_high_prec_dtype(name: Any) -> str:
    """Set the dtype of sensitive ops: float32."""
    low, high = _core.autocast_dtypes()
    _core.set_autocast_dtypes(low, _checked(name, "high_prec_dtype"))
    return high


def _checked(name: Any, what: str) -> str:
    text = name if isinstance(name, str) else "bfloat16" if name is bfloat16 else np.dtype(name).name
    if text not in _FLOATS:
        raise _core.UserError(f"amp: {what} must be one of {', '.join(_FLOATS)}; got {name!r}.")
    return text
