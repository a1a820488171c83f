"""Marking what is old."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any


def deprecated(version: str, reason: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: calls warn that the function is deprecated.

    >>> from megengine.utils.deprecation import deprecated
    >>> @deprecated(version="1.0", reason="use g")
    ... def f():
    ...     return 1
    """

    def wrap(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            text = f"Call to deprecated function {func.__name__}."
            text += f" ({reason})" if reason else ""
            warnings.warn(f"{text} -- Deprecated since version {version}.", DeprecationWarning, stacklevel=2)
            return func(*args, **kwargs)

        return call

    return wrap


def deprecated_func(version: str, origin: str, name: str, tbd: bool) -> Callable[..., Any]:
    """A function that warns and calls ``origin.name``, where it lives now.

    Args:
        version: since when the old name is deprecated.
        origin: the module that holds the function.
        name: its name there.
        tbd: whether the old name will be removed.
    """

    @deprecated(version, f"Please use {origin}.{name} instead" + (", this name will be removed" if tbd else ""))
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(origin), name)(*args, **kwargs)

    call.__name__ = name
    return call


def deprecated_kwargs_default(version: str, kwargs_name: str, kwargs_pos: int) -> Callable[..., Any]:
    """Decorator: calls that leave an argument to its default warn that the default will change.

    Args:
        version: when the default changes.
        kwargs_name: the argument.
        kwargs_pos: its position; fewer positional arguments than that leave it out.
    """

    def wrap(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) < kwargs_pos and kwargs_name not in kwargs:
                warnings.warn(
                    f"the default of {kwargs_name} of {func.__name__} changes in version {version}; set it explicitly.",
                    DeprecationWarning,
                    stacklevel=2,
                )
            return func(*args, **kwargs)

        return call

    return wrap
