"""The table of what each op class means, and what the files that fill it share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tensor import Tensor
from ..autodiff.grad import Grad

#: An op and its input tensors to a tensor or several.
Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
INT_MAX = 2**31 - 1


def rule(name: str) -> Callable[[Rule], Rule]:
    """The decorated function is what the op class ``name`` means."""

    def keep(fn: Rule) -> Rule:
        RULES[name] = fn
        return fn

    return keep


def hw(op: Any, what: str) -> tuple[int, ...]:
    """Fields such as ``pad_d``, ``pad_h``, ``pad_w`` as a tuple."""
    return tuple(getattr(op, f"{what}_{d}") for d in ("d", "h", "w") if hasattr(op, f"{what}_{d}"))


def pullback(fn: Callable[[Tensor], Tensor], x: Tensor, dy: Tensor) -> Tensor:
    """The gradient in ``x`` of ``fn(x)`` whose own gradient is ``dy``."""
    got: list[Tensor] = []
    with Grad().wrt(x, callback=got.append) as grad:
        grad(fn(x), dy)
    return got[0]
