"""Names of the original's private ``core2`` module that programs import. Thin, and only what exists here."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...tensor import Tensor
from .. import _amp
from .._core import AsyncError, CompNode, TraceError, full_sync, is_tracked, set_custom_grad, sync
from ..tensor.utils import dtype_promotion, get_convert_inputs, get_device, make_shape_tuple, set_convert_inputs
from . import lower_vision as lower_vision  # its rules are used through apply
from .lower import apply

__all__ = [
    "AsyncError",
    "CompNode",
    "Const",
    "Tensor",
    "TensorWeakRef",
    "TraceError",
    "apply",
    "astype_cpp",
    "create_complex",
    "dtype_promotion",
    "full_sync",
    "get_device",
    "make_shape_tuple",
    "set_grad",
    "sync",
]


def Const(value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A constant tensor: a trace bakes its value in."""
    return Tensor(value, dtype, device, is_const=True)


class TensorWeakRef:
    """A reference that does not keep a tensor alive: called, it gives the tensor or None.

    >>> from megengine.core._imperative_rt.core2 import TensorWeakRef
    >>> x = mge.tensor([1.0])
    >>> ref = TensorWeakRef(x)
    >>> ref() is x
    True
    >>> del x
    >>> ref() is None
    True
    """

    def __init__(self, tensor: Tensor) -> None:
        self._ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        return self._ref()


def set_grad(backward: Callable[..., Any], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs anew, as if computed from the inputs by an op with this gradient.

    ``backward`` gets one gradient per output, None where it is not used, and gives one per input.

    >>> from megengine.autodiff import GradManager
    >>> from megengine.core._imperative_rt.core2 import set_grad
    >>> x = mge.tensor([3.0])
    >>> with GradManager().attach(x) as gm:
    ...     (y,) = set_grad(lambda dy: (dy * 5,), (x,), (mge.tensor([7.0]),))
    ...     gm.backward(y)
    >>> x.grad.tolist()
    [5.0]
    """
    results = tuple(Tensor(y.detach()) for y in outputs)
    if is_tracked(tuple(inputs)):
        set_custom_grad(backward, tuple(inputs), results)
    return list(results)


def astype_cpp(x: Tensor, dtype: Any) -> Tensor:
    """The same as ``x.astype(dtype)``."""
    return x.astype(dtype)


def create_complex(real: Tensor, imag: Tensor) -> Tensor:
    """The complex tensor of two real ones.

    >>> from megengine.core._imperative_rt.core2 import create_complex
    >>> create_complex(mge.tensor([1.0]), mge.tensor([2.0])).numpy()
    array([1.+2.j], dtype=complex64)
    """
    from ...functional import complex

    return complex(real, imag)


_get_amp_dtype_autocast = _amp.enabled
_get_amp_high_prec_dtype = _amp.high_prec_dtype
_get_amp_low_prec_dtype = _amp.low_prec_dtype
_set_amp_dtype_autocast = _amp.set_enabled
_set_amp_high_prec_dtype = _amp.set_high_prec_dtype
_set_amp_low_prec_dtype = _amp.set_low_prec_dtype


_get_convert_inputs = get_convert_inputs
_set_convert_inputs = set_convert_inputs
