"""Switches of tracing."""

from __future__ import annotations

_expr_checker = False
_default_checker = True


def _get_expr_checker() -> bool:
    return _expr_checker


def _get_default_checker() -> bool:
    return _default_checker


class _Switched:
    """A switch that was turned; ``with`` turns it back at its end."""

    def __init__(self, name: str, value: bool) -> None:
        self._name, self._before = name, globals()[name]
        globals()[name] = value

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        globals()[self._name] = self._before


def enable_expr_checker() -> _Switched:
    """From now on, or while it lasts, ``trace_module`` runs every expression a second time and compares the results.

    >>> from megengine.traced_module import enable_expr_checker, trace_module
    >>> with enable_expr_checker():
    ...     tm = trace_module(M.Sequential(M.Linear(2, 2)), F.ones((1, 2)))
    """
    return _Switched("_expr_checker", True)


def disable_default_checker() -> _Switched:
    """From now on, or while it lasts, ``trace_module`` does not compare its results with those of the original.

    >>> from megengine.traced_module import disable_default_checker, trace_module
    >>> with disable_default_checker():
    ...     tm = trace_module(M.Sequential(M.Linear(2, 2)), F.ones((1, 2)))
    """
    return _Switched("_default_checker", False)
