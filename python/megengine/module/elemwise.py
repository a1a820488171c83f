"""Elementwise functions as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core._core import ops
from ..functional import clip, prelu
from ..tensor import Tensor
from .module import Module


def _named(op: str, swap: bool = False) -> Callable[..., Tensor]:
    def call(*inps: Any) -> Tensor:
        f: Callable[..., Tensor] = getattr(ops, op)
        return f(*inps[::-1]) if swap else f(*inps)

    return call


def _fused(op: str) -> Callable[..., Tensor]:
    def call(x: Any, y: Any) -> Tensor:
        f: Callable[..., Tensor] = getattr(ops, op)
        return f(ops.add(x, y))

    return call


#: Modes by the names of the original; most are ops of the same name.
_MODES: dict[str, Callable[..., Tensor]] = {
    "negate": _named("neg"),
    "true_div": _named("div"),
    "max": _named("maximum"),
    "min": _named("minimum"),
    "shl": _named("left_shift"),
    "shr": _named("right_shift"),
    "not": _named("logical_not"),
    "and": _named("logical_and"),
    "or": _named("logical_or"),
    "xor": _named("logical_xor"),
    "leq": _named("le"),
    "neq": _named("ne"),
    "h_swish": _named("hswish"),
    "log_sum_exp": _named("logaddexp"),
    "fuse_add_relu": _fused("relu"),
    "fuse_add_sigmoid": _fused("sigmoid"),
    "fuse_add_tanh": _fused("tanh"),
    "fuse_add_h_swish": _fused("hswish"),
    "fuse_mul_add3": lambda a, b, c: ops.add(ops.mul(a, b), c),
    "fuse_mul_add4": lambda a, b, c, d: ops.add(ops.mul(a, b), ops.mul(c, d)),
    "prelu": prelu,
    "clip": clip,
}
_PLAIN = (
    "relu abs acos asin ceil cos exp expm1 floor log log1p sigmoid sin tanh add floor_div mod mul pow sub lt eq "
    "round atan2 erf silu gelu isnan isinf sinh cosh asinh acosh atanh tan softplus relu6 hsigmoid logsigmoid sqrt "
    "square sign"
).split()


class Elemwise(Module):
    """An elementwise function by name, in any case: ``"add"``, ``"RELU"``, ``"fuse_add_relu"``, …

    >>> M.Elemwise("add")(mge.tensor([1.0]), mge.tensor([2.0])).tolist()
    [3.0]
    """

    def __init__(self, method: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = method
        self._function()  # an unknown name is an error here, not at the first call

    def _function(self) -> Callable[..., Tensor]:
        name = self.method.lower()
        if name in _MODES:
            return _MODES[name]
        if name in _PLAIN:
            return _named(name)
        known = ", ".join(sorted([*_MODES, *_PLAIN]))
        raise ValueError(f"Elemwise: unknown method {self.method!r}. Known: {known}.")

    def forward(self, *inps: Tensor) -> Tensor:
        return self._function()(*inps)
