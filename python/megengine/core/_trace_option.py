"""Process-wide switches of tracing."""

from __future__ import annotations

import os

_symbolic_shape = bool(os.environ.get("MEGENGINE_USE_SYMBOLIC_SHAPE"))
_xla_backend = False


def use_symbolic_shape() -> bool:
    """Whether ``Tensor.shape`` should be a Tensor. The switch is kept, but shapes are tuples (docs/compat.md)."""
    return _symbolic_shape


def set_symbolic_shape(option: bool) -> bool:
    """Set the switch and return what it was."""
    global _symbolic_shape
    old, _symbolic_shape = _symbolic_shape, bool(option)
    return old


def use_xla_backend() -> bool:
    """Always False: there is no XLA backend here."""
    return _xla_backend


def set_use_xla_backend(option: bool) -> bool:
    """Refuse a true value; there is no XLA backend here. Returns what the switch was."""
    if option:
        raise NotImplementedError("set_use_xla_backend: there is no XLA backend. The graph compiler is always used.")
    return _xla_backend
