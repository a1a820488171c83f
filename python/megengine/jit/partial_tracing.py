"""partial_trace: a part of a training step as a compiled program, inside a GradManager of the caller."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .tracing import OUTER_GRADIENTS, trace

__all__ = ["partial_trace"]


def partial_trace(
    func: Callable[..., Any] | None = None, *, backend: str = "default", without_host: bool = True, **trace_options: Any
) -> Any:
    """Records a function that is called between the start of a ``GradManager`` and its ``backward``.

    Args:
        backend: ``"default"``; there is no other.
        without_host: gradients flow through the call in either case. The caller's tape has to see the ops, so while one
            is open Python runs along; without one the program runs alone if this is True.
        trace_options: as for ``trace``. ``trace_gmcallback`` has no effect: callbacks run as they do in eager mode.

    >>> from megengine.jit import partial_trace
    >>> @partial_trace
    ... def square(x):
    ...     return x * x
    >>> x = mge.Parameter([3.0])
    >>> for _ in range(3):
    ...     with mge.autodiff.GradManager().attach([x]) as gm:
    ...         gm.backward(square(x))
    >>> x.grad.item()
    18.0
    """
    if backend != "default":
        raise NotImplementedError(f"partial_trace: there is no backend {backend!r}; leave it out for the default one.")
    trace_options.pop("trace_gmcallback", None)
    if func is None:
        return functools.partial(partial_trace, backend=backend, without_host=without_host, **trace_options)
    return _PartialTrace(func, without_host=without_host, **trace_options)


class _PartialTrace(trace):
    def _tell(self, reason: str) -> None:
        """An open GradManager is the ordinary case here, so it is nothing to warn of."""
        if reason is not OUTER_GRADIENTS:
            super()._tell(reason)
