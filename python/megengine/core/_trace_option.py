"""Process-wide switches of tracing."""

from __future__ import annotations

import os

from . import _core

_xla_backend = False


def use_symbolic_shape() -> bool:
    """Whether ``x.shape`` is a Tensor: inside a traced call as the trace says, else by the switch.

    >>> use_symbolic_shape()
    False
    """
    return _core.use_symbolic_shape()


def set_symbolic_shape(option: bool) -> bool:
    """Set the switch and return what it was; inside a traced call that of the call.

    >>> x = mge.tensor([1.0, 2.0])
    >>> old = set_symbolic_shape(True)
    >>> isinstance(x.shape, mge.Tensor)
    True
    >>> set_symbolic_shape(old), x.shape
    (True, (2,))
    """
    return _core.set_symbolic_shape(bool(option))


def use_xla_backend() -> bool:
    """Always False: there is no XLA backend here."""
    return _xla_backend


def set_use_xla_backend(option: bool) -> bool:
    """Refuse a true value; there is no XLA backend here. Returns what the switch was."""
    if option:
        raise NotImplementedError("set_use_xla_backend: there is no XLA backend. The graph compiler is always used.")
    return _xla_backend


if os.environ.get("MEGENGINE_USE_SYMBOLIC_SHAPE"):
    set_symbolic_shape(True)
