"""Names of the original's private module that programs import: the methods of tensors as functions.

>>> from megengine.core.tensor.array_method import _elwise, _reduce
>>> x = mge.tensor([[1.0, -2.0], [3.0, 4.0]])
>>> _elwise(x, mode="relu").tolist(), _reduce("MAX")(x, 1).tolist()
([[1.0, 0.0], [3.0, 4.0]], [1.0, 4.0])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...functional.elemwise import _elwise
from ...functional.math import matmul
from ...tensor import ArrayMethodMixin, Tensor
from .._core import ops

__all__ = [
    "ArrayMethodMixin",
    "_broadcast",
    "_elwise",
    "_elwise_apply",
    "_matmul",
    "_reduce",
    "_reshape",
    "_transpose",
]

#: What the original calls a reduction, and what it is here.
_REDUCTIONS = {"PRODUCT": "prod", "SUM": "sum", "MIN": "min", "MAX": "max", "MEAN": "mean"}


def _elwise_apply(args: tuple[Any, ...], mode: Any) -> Tensor:
    """An elementwise op of a tuple of operands."""
    return _elwise(*args, mode=mode)


def _reduce(mode: Any) -> Callable[..., Tensor]:
    """The method of tensors that reduces in this way: ``f(x, axis=None, keepdims=False)``."""
    name = str(getattr(mode, "members", lambda: (mode,))()[0]).upper()
    if name == "SUM_SQR":
        return lambda self, axis=None, keepdims=False: ops.square(self).sum(axis, keepdims)
    if name not in _REDUCTIONS:
        raise ValueError(f"_reduce: unknown mode {mode!r}. Known: {', '.join([*_REDUCTIONS, 'SUM_SQR'])}.")
    method: Callable[..., Tensor] = getattr(ArrayMethodMixin, _REDUCTIONS[name])
    return method


def _matmul(
    inp1: Any,
    inp2: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    compute_mode: str = "default",
) -> Tensor:
    """The matrix product; see ``F.matmul``."""
    return matmul(inp1, inp2, transpose_a, transpose_b, compute_mode)


def _transpose(data: Tensor, axes: Any) -> Tensor:
    """The axes in another order; ``"x"`` stands for a new one of size 1.

    >>> from megengine.core.tensor.array_method import _transpose
    >>> _transpose(F.zeros((2, 3)), (1, "x", 0)).shape
    (3, 1, 2)
    """
    return data.transpose(*axes)


def _broadcast(inp: Tensor, shape: Any) -> Tensor:
    """Repeat up to ``shape``."""
    return inp._broadcast(shape)


def _reshape(x: Tensor, shape: Any) -> Tensor:
    """The elements in another shape; -1 follows from the others."""
    return x.reshape(shape)
