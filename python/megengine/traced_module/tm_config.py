"""Switches of tracing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_expr_checker = False
_default_checker = True


def _get_expr_checker() -> bool:
    return _expr_checker


def _get_default_checker() -> bool:
    return _default_checker


@contextmanager
def enable_expr_checker() -> Iterator[None]:
    """While it lasts, ``trace_module`` runs every expression a second time and compares the results.

    >>> from megengine.traced_module import enable_expr_checker, trace_module
    >>> with enable_expr_checker():
    ...     tm = trace_module(M.Sequential(M.Linear(2, 2)), F.ones((1, 2)))
    """
    global _expr_checker
    before, _expr_checker = _expr_checker, True
    try:
        yield
    finally:
        _expr_checker = before


@contextmanager
def disable_default_checker() -> Iterator[None]:
    """While it lasts, ``trace_module`` does not compare the results of the traced module with those of the original.

    >>> from megengine.traced_module import disable_default_checker, trace_module
    >>> with disable_default_checker():
    ...     tm = trace_module(M.Sequential(M.Linear(2, 2)), F.ones((1, 2)))
    """
    global _default_checker
    before, _default_checker = _default_checker, False
    try:
        yield
    finally:
        _default_checker = before
