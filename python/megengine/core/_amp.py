"""Mixed precision: which ops cast their inputs while autocast is on.

Nothing is asked of an op while it is off: switching on puts casting stand-ins in the place of the ops of the tables
below and of the operators of Tensor, switching off puts the ops back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core, _format
from ._core import TensorBase, ops
from .tensor.dtype import bfloat16, is_differentible_dtype

if TYPE_CHECKING:
    from ..tensor import Tensor

#: Whether ops cast now. Read it as ``_amp.enabled``; change it with ``set_enabled``.
enabled = False
low_prec_dtype = "float16"
high_prec_dtype = "float32"

_FLOATS = ("float16", "bfloat16", "float32")

#: Every floating input in low precision.
LOW = ("matmul", "conv2d", "conv2d_dx")
#: Every floating input in high precision: what loses accuracy or overflows in half precision.
HIGH = (
    "div", "exp", "pow", "log", "expm1", "log1p", "acos", "asin", "atan", "atan2", "cos", "sin", "tan", "logaddexp",
    "asinh", "acosh", "atanh", "sinh", "cosh", "softplus", "hsigmoid", "logsigmoid", "sqrt", "rsqrt",
    "layer_norm", "logsoftmax", "softmax_xent",
)  # fmt: skip
#: The first input and the first output in low precision, the parameters in high.
NORM = ("batch_norm_train", "batch_norm_infer")
_OPERATORS = {
    "__matmul__": "matmul", "__rmatmul__": "matmul", "__imatmul__": "matmul",
    "__truediv__": "div", "__rtruediv__": "div", "__itruediv__": "div",
    "__pow__": "pow", "__rpow__": "pow", "__ipow__": "pow",
}  # fmt: skip


def _is_float(x: Any) -> bool:
    return is_differentible_dtype(x.dtype)


def low(x: Any) -> Any:
    """A floating tensor in low precision; anything else as it is."""
    return x.astype(low_prec_dtype) if isinstance(x, TensorBase) and _is_float(x) else x


def high(x: Any) -> Any:
    """A floating tensor in high precision; anything else as it is."""
    return x.astype(high_prec_dtype) if isinstance(x, TensorBase) and _is_float(x) else x


class _Casting:
    """Stands for an op and casts its inputs; everything else about the op is passed through."""

    def __init__(self, op: Any, cast: Callable[[Any], Any]) -> None:
        self._op, self._cast = op, cast

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        cast = self._cast
        return self._op(*(cast(a) for a in args), **attrs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


class _CastingNorm(_Casting):
    def __init__(self, op: Any) -> None:
        super().__init__(op, high)

    def __call__(self, x: Any, *params: Any, **attrs: Any) -> Any:
        # Computed in high precision from the rounded input; what comes out is rounded again.
        out = self._op(high(low(x)), *(high(p) for p in params), **attrs)
        return low(out) if not isinstance(out, tuple) else (low(out[0]), *out[1:])


def _casting_operator(name: str, cast: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    plain = getattr(TensorBase, name)

    def operator(self: Any, other: Any, *rest: Any) -> Any:
        return plain(cast(self), cast(other), *rest)

    operator.__name__ = name
    return operator


def _casting_update(name: str, cast: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """``x /= y`` in the precision of ``x / y``; x stays the same tensor and takes the new dtype."""
    plain = getattr(TensorBase, "__" + name[3:])

    def operator(self: Any, other: Any, *rest: Any) -> Any:
        self._reset(plain(cast(self), cast(other), *rest))
        return self

    operator.__name__ = name
    return operator


_plain_ops: dict[str, Any] = {}


def set_enabled(value: bool) -> None:
    """Switch casting on or off."""
    global enabled
    value = bool(value)
    if value == enabled:
        return
    tensor = _tensor_class()
    if value:
        _plain_ops.update((n, getattr(ops, n)) for n in (*LOW, *HIGH, *NORM) if hasattr(ops, n))
        for name, op in _plain_ops.items():
            setattr(ops, name, _CastingNorm(op) if name in NORM else _Casting(op, low if name in LOW else high))
        for name, op_name in _OPERATORS.items():
            make = _casting_update if name.startswith("__i") else _casting_operator
            setattr(tensor, name, make(name, low if op_name in LOW else high))
    else:
        for name, op in _plain_ops.items():
            setattr(ops, name, op)
        _plain_ops.clear()
        for name in _OPERATORS:
            delattr(tensor, name)
    enabled = value
    _format.refresh()


def current(op: Any) -> Any:
    """The stand-in of an op that a table holds, or the op itself; for tables made before autocast was on."""
    found = (n for n, plain in _plain_ops.items() if op is plain or op is getattr(plain, "_op", None))
    return next((getattr(ops, name) for name in found), op)


def plain(name: str) -> Callable[..., Tensor]:
    """An op without its casts, for functions composed of it that autocast does not name: they only promote."""
    op: Callable[..., Tensor] = _plain_ops.get(name) or getattr(ops, name)
    return op


def _tensor_class() -> Any:
    from ..tensor import Tensor

    return Tensor


def set_low_prec_dtype(name: str) -> None:
    """Set the dtype of products and convolutions: float16 or bfloat16."""
    global low_prec_dtype
    low_prec_dtype = _checked(name, "low_prec_dtype")


def set_high_prec_dtype(name: str) -> None:
    """Set the dtype of sensitive ops: float32."""
    global high_prec_dtype
    high_prec_dtype = _checked(name, "high_prec_dtype")


def _checked(name: Any, what: str) -> str:
    text = name if isinstance(name, str) else "bfloat16" if name is bfloat16 else np.dtype(name).name
    if text not in _FLOATS:
        raise _core.UserError(f"amp: {what} must be one of {', '.join(_FLOATS)}; got {name!r}.")
    return text
