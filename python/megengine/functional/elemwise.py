"""Elementwise functions. Operands are tensors, arrays, lists or numbers, and broadcast as in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..core._core import ops
from ..core._habits import unexpected

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "div",
    "equal",
    "erf",
    "exp",
    "expm1",
    "floor",
    "floor_div",
    "greater",
    "greater_equal",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log1p",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "neg",
    "not_equal",
    "pow",
    "right_shift",
    "round",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
]

TensorLike = Any  # a Tensor, or what Tensor() takes


def add(x: TensorLike, y: TensorLike) -> Tensor:
    """x + y.

    >>> F.add(mge.tensor([1.0, 2.0]), 3).tolist()
    [4.0, 5.0]
    """
    return ops.add(x, y)


def sub(x: TensorLike, y: TensorLike) -> Tensor:
    """x - y.

    >>> F.sub(mge.tensor([1.0, 2.0]), 3).tolist()
    [-2.0, -1.0]
    """
    return ops.sub(x, y)


def mul(x: TensorLike, y: TensorLike) -> Tensor:
    """x * y.

    >>> F.mul(mge.tensor([1.0, 2.0]), 3).tolist()
    [3.0, 6.0]
    """
    return ops.mul(x, y)


def div(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y, a float even for integers.

    >>> F.div(mge.tensor([1, 3]), 2).tolist()
    [0.5, 1.5]
    """
    return ops.div(x, y)


def floor_div(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y rounded down, towards minus infinity.

    >>> F.floor_div(mge.tensor([7, -7]), 2).tolist()
    [3, -4]
    """
    return ops.floor_div(x, y)


def neg(x: TensorLike) -> Tensor:
    """-x.

    >>> F.neg(mge.tensor([1.0, -2.0])).tolist()
    [-1.0, 2.0]
    """
    return ops.neg(x)


def abs(x: TensorLike) -> Tensor:
    """|x|.

    >>> F.abs(mge.tensor([1, -2])).tolist()
    [1, 2]
    """
    return ops.abs(x)


def square(x: TensorLike) -> Tensor:
    """x * x.

    >>> F.square(mge.tensor([1, -2])).tolist()
    [1, 4]
    """
    return ops.square(x)


def sqrt(x: TensorLike) -> Tensor:
    """The square root.

    >>> F.sqrt(mge.tensor([4.0, 9.0])).tolist()
    [2.0, 3.0]
    """
    return ops.sqrt(x)


def pow(x: TensorLike, y: TensorLike) -> Tensor:
    """x to the power of y, always a float.

    >>> F.pow(mge.tensor([2, 3]), 2).tolist()
    [4.0, 9.0]
    """
    return ops.pow(x, y)


def mod(x: TensorLike, y: TensorLike) -> Tensor:
    """The remainder: with the sign of y for integers, with the sign of x for floats (C's fmod).

    >>> F.mod(mge.tensor([7, -7]), 3).tolist(), F.mod(mge.tensor([-7.0]), 3.0).tolist()
    ([1, 2], [-1.0])
    """
    return ops.mod(x, y)


def exp(x: TensorLike) -> Tensor:
    """e to the power of x.

    >>> F.exp(mge.tensor([0.0])).tolist()
    [1.0]
    """
    return ops.exp(x)


def expm1(x: TensorLike) -> Tensor:
    """exp(x) - 1, exact near 0.

    >>> F.expm1(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.expm1(x)


def log(x: TensorLike) -> Tensor:
    """The natural logarithm.

    >>> F.log(mge.tensor([1.0])).tolist()
    [0.0]
    """
    return ops.log(x)


def log1p(x: TensorLike) -> Tensor:
    """log(1 + x), exact near 0.

    >>> F.log1p(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.log1p(x)


def erf(x: TensorLike) -> Tensor:
    """The error function.

    >>> F.erf(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.erf(x)


def logaddexp(x: TensorLike, y: TensorLike) -> Tensor:
    """log(exp(x) + exp(y)), without overflow.

    >>> F.logaddexp(mge.tensor([1000.0]), 0.0).tolist()
    [1000.0]
    """
    return ops.logaddexp(x, y)


def round(x: TensorLike) -> Tensor:
    """The nearest integer; halves go away from zero. Integers are returned unchanged.

    >>> F.round(mge.tensor([2.5, -2.5, 1.2])).tolist()
    [3.0, -3.0, 1.0]
    """
    return ops.round(x)


def ceil(x: TensorLike) -> Tensor:
    """The next integer up.

    >>> F.ceil(mge.tensor([1.2, -1.2])).tolist()
    [2.0, -1.0]
    """
    return ops.ceil(x)


def floor(x: TensorLike) -> Tensor:
    """The next integer down.

    >>> F.floor(mge.tensor([1.2, -1.2])).tolist()
    [1.0, -2.0]
    """
    return ops.floor(x)


def maximum(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of x and y; NaN wins.

    >>> F.maximum(mge.tensor([1, 5]), 3).tolist()
    [3, 5]
    """
    return ops.maximum(x, y)


def minimum(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of x and y; NaN wins.

    >>> F.minimum(mge.tensor([1, 5]), 3).tolist()
    [1, 3]
    """
    return ops.minimum(x, y)


def clip(x: TensorLike, lower: TensorLike | None = None, upper: TensorLike | None = None, **other: NoReturn) -> Tensor:
    """x kept between ``lower`` and ``upper``; at least one bound must be given. NaN stays NaN.

    Where the lower bound is above the upper one the upper one wins, as in NumPy.

    >>> F.clip(mge.tensor([-2.0, 0.5, 9.0]), 0, 6).tolist()
    [0.0, 0.5, 6.0]
    """
    if other:
        raise unexpected("clip", other, clip)
    assert lower is not None or upper is not None, "clip: give a lower bound, an upper bound or both."
    if lower is not None:
        x = ops.maximum(x, lower)
    return ops.minimum(x, upper) if upper is not None else cast("Tensor", x)


def cos(x: TensorLike) -> Tensor:
    """The cosine.

    >>> F.cos(mge.tensor([0.0])).tolist()
    [1.0]
    """
    return ops.cos(x)


def sin(x: TensorLike) -> Tensor:
    """The sine.

    >>> F.sin(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.sin(x)


def tan(x: TensorLike) -> Tensor:
    """The tangent.

    >>> F.tan(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.tan(x)


def acos(x: TensorLike) -> Tensor:
    """The angle with cosine x.

    >>> F.acos(mge.tensor([1.0])).tolist()
    [0.0]
    """
    return ops.acos(x)


def asin(x: TensorLike) -> Tensor:
    """The angle with sine x.

    >>> F.asin(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.asin(x)


def atan(x: TensorLike) -> Tensor:
    """The angle with tangent x.

    >>> F.atan(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.atan(x)


def atan2(y: TensorLike, x: TensorLike) -> Tensor:
    """The angle of the point (x, y).

    >>> F.atan2(mge.tensor([0.0]), 1.0).tolist()
    [0.0]
    """
    return ops.atan2(y, x)


def cosh(x: TensorLike) -> Tensor:
    """The hyperbolic cosine.

    >>> F.cosh(mge.tensor([0.0])).tolist()
    [1.0]
    """
    return ops.cosh(x)


def sinh(x: TensorLike) -> Tensor:
    """The hyperbolic sine.

    >>> F.sinh(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.sinh(x)


def tanh(x: TensorLike) -> Tensor:
    """The hyperbolic tangent.

    >>> F.tanh(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.tanh(x)


def acosh(x: TensorLike) -> Tensor:
    """The inverse of cosh.

    >>> F.acosh(mge.tensor([1.0])).tolist()
    [0.0]
    """
    return ops.acosh(x)


def asinh(x: TensorLike) -> Tensor:
    """The inverse of sinh.

    >>> F.asinh(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.asinh(x)


def atanh(x: TensorLike) -> Tensor:
    """The inverse of tanh.

    >>> F.atanh(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.atanh(x)


def left_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """x * 2**y, for integers.

    >>> F.left_shift(mge.tensor([1, 3]), 2).tolist()
    [4, 12]
    """
    return ops.left_shift(x, y)


def right_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """x / 2**y rounded down, for integers.

    >>> F.right_shift(mge.tensor([4, 13]), 2).tolist()
    [1, 3]
    """
    return ops.right_shift(x, y)


def logical_and(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether both are true; bools only.

    >>> F.logical_and(True, False).item()
    False
    """
    return ops.logical_and(x, y)


def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether one is true; bools only.

    >>> F.logical_or(True, False).item()
    True
    """
    return ops.logical_or(x, y)


def logical_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether exactly one is true; bools only.

    >>> F.logical_xor(True, True).item()
    False
    """
    return ops.logical_xor(x, y)


def logical_not(x: TensorLike) -> Tensor:
    """The opposite; bools only.

    >>> F.logical_not(mge.tensor([True, False])).tolist()
    [False, True]
    """
    return ops.logical_not(x)


def equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x == y, as bools.

    >>> F.equal(mge.tensor([1, 2]), 2).tolist()
    [False, True]
    """
    return cast("Tensor", x == y)  # the operators: two numbers give a Python bool


def not_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x != y, as bools.

    >>> F.not_equal(mge.tensor([1, 2]), 2).tolist()
    [True, False]
    """
    return cast("Tensor", x != y)


def less(x: TensorLike, y: TensorLike) -> Tensor:
    """x < y, as bools.

    >>> F.less(mge.tensor([1, 2]), 2).tolist()
    [True, False]
    """
    return cast("Tensor", x < y)


def less_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x <= y, as bools.

    >>> F.less_equal(mge.tensor([1, 3]), 2).tolist()
    [True, False]
    """
    return cast("Tensor", x <= y)


def greater(x: TensorLike, y: TensorLike) -> Tensor:
    """x > y, as bools.

    >>> F.greater(mge.tensor([1, 3]), 2).tolist()
    [False, True]
    """
    return cast("Tensor", x > y)


def greater_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """x >= y, as bools.

    >>> F.greater_equal(mge.tensor([1, 2]), 2).tolist()
    [False, True]
    """
    return cast("Tensor", x >= y)


# Where programs of older versions find functions that live in nn.
hsigmoid, hswish, relu, relu6, sigmoid = ops.hsigmoid, ops.hswish, ops.relu, ops.relu6, ops.sigmoid


def __getattr__(name: str) -> Any:
    """``Elemwise``, which programs find here and in ``core.ops.builtin``."""
    if name == "Elemwise":
        from ..core._imperative_rt.ops import OPS

        return OPS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _elwise(*args: Any, mode: Any) -> Tensor:
    """An elementwise op by the original's name or member of ``Elemwise.Mode``.

    >>> from megengine.functional.elemwise import Elemwise, _elwise
    >>> x = mge.tensor([-2.0])
    >>> _elwise(x, 3, mode=Elemwise.Mode.MUL).tolist(), _elwise(x, mode="relu").tolist()
    ([-6.0], [0.0])
    """
    from ..core._imperative_rt.core2 import apply
    from ..core._imperative_rt.ops import OPS

    return apply(OPS["Elemwise"](mode), *args)[0]


def _elemwise_multi_type(*args: Any, mode: str, **kwargs: Any) -> Tensor:
    """An elementwise op whose result has a dtype of its own, by the original's mode name."""
    from ..core._imperative_rt.core2 import apply
    from ..core._imperative_rt.ops import OPS

    return apply(OPS["ElemwiseMultiType"](mode=mode, **kwargs), *args)[0]
