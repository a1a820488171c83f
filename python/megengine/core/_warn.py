"""Warnings at the user's line, once per place."""

from __future__ import annotations

import os
import sys
import warnings

import numpy as np

#: Code whose lines mean nothing to the user.
_INSIDE = tuple(os.path.dirname(os.path.abspath(f)) + os.sep for f in (os.path.dirname(__file__), np.__file__))

_told: set[tuple[str, str, int]] = set()


def called_from_outside() -> bool:
    """Whether the caller of the function that asks is a program of a user, not this package."""
    return not sys._getframe(2).f_code.co_filename.startswith(_INSIDE)


def warn_once(subject: str, text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn about ``subject`` at the innermost line outside of this package, the first time that line comes to it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    if (subject, file, line) not in _told:
        _told.add((subject, file, line))
        warnings.warn_explicit(text, category, file, line, frame.f_globals.get("__name__"))


def forget() -> None:
    """Every line may be warned about again."""
    _told.clear()
