"""Switching rematerialisation on and off."""

from __future__ import annotations

import re

from ..core import set_option

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d*)?)\s*([kmg]?)b\s*$", re.IGNORECASE)
_SWITCHES = ("enable_dtr_auto_drop", "enable_drop", "record_computing_path")


def _bytes(name: str, value: int | str) -> int:
    """A size given as a number or as text, ``"512 MB"`` for example; units are powers of 1024."""
    if isinstance(value, str):
        match = _SIZE.match(value)
        if match is None:
            raise ValueError(f"dtr: {name} must read like 10B, 1.5KB, 512 MB or 2GB; got {value!r}.")
        return int(float(match.group(1)) * _UNITS[match.group(2).lower()])
    if not isinstance(value, int):
        raise TypeError(f"dtr: {name} must be a str or an int; got {type(value).__name__}.")
    if value < 0:
        raise ValueError(f"dtr: {name} must be at least 0; got {value}.")
    return int(value)


def enable() -> None:
    """Switch rematerialisation on.

    >>> from megengine import dtr
    >>> dtr.enable()
    >>> dtr.disable()
    """
    for name in _SWITCHES:
        set_option(name, 1)


def disable() -> None:
    """Switch rematerialisation off."""
    for name in _SWITCHES:
        set_option(name, 0)
