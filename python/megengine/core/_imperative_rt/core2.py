"""Names of the original's private ``core2`` module that programs import. Thin, and only what exists here."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...tensor import Tensor
from .. import get_option, set_option
from .._config import get_auto_format_convert, set_auto_format_convert
from .._core import (
    AsyncError,
    CompNode,
    TraceError,
    full_sync,
    is_tracked,
    pop_scope,
    push_scope,
    run_op_class,
    set_custom_grad,
    sync,
)
from .._core import shutdown as close
from ..tensor.amp import (
    _get_amp_dtype_autocast as _get_amp_dtype_autocast,
)
from ..tensor.amp import (
    _get_amp_high_prec_dtype as _get_amp_high_prec_dtype,
)
from ..tensor.amp import (
    _get_amp_low_prec_dtype as _get_amp_low_prec_dtype,
)
from ..tensor.amp import (
    _set_amp_dtype_autocast as _set_amp_dtype_autocast,
)
from ..tensor.amp import (
    _set_amp_high_prec_dtype as _set_amp_high_prec_dtype,
)
from ..tensor.amp import (
    _set_amp_low_prec_dtype as _set_amp_low_prec_dtype,
)
from ..tensor.utils import (
    _get_convert_inputs as _get_convert_inputs,
)
from ..tensor.utils import (
    _set_convert_inputs as _set_convert_inputs,
)
from ..tensor.utils import (
    convert_inputs,
    dtype_promotion,
    get_device,
    make_shape_tuple,
)
from ._stand_ins import stand_in
from .opdef import OpDef

__all__ = [
    "AsyncError",
    "CompNode",
    "Const",
    "Tensor",
    "TensorWeakRef",
    "TraceError",
    "apply",
    "astype_cpp",
    "close",
    "create_complex",
    "dtype_promotion",
    "full_sync",
    "get_auto_format_convert",
    "get_device",
    "get_option",
    "make_shape_tuple",
    "pop_scope",
    "push_scope",
    "set_auto_format_convert",
    "set_grad",
    "set_option",
    "sync",
]


def apply(op: OpDef, *inputs: Any) -> tuple[Tensor, ...]:
    """Run an op of ``megengine.core.ops.builtin``; always a tuple.

    What the op means is a rule of src/compat, which emits ops through dispatch: it is traced and differentiated like
    any other code.

    >>> from megengine.core.ops import builtin
    >>> from megengine.core._imperative_rt.core2 import apply
    >>> apply(builtin.Reduce(mode="sum", axis=0, keepdim=False), mge.tensor([1.0, 2.0]))[0].item()
    3.0
    """
    if not isinstance(op, OpDef):
        raise TypeError(f"apply: needs an op of megengine.core.ops.builtin first; got {type(op).__name__}.")
    name = type(op).__name__
    if name.startswith("Elemwise") and not all(isinstance(x, Tensor) for x in inputs):
        inputs = tuple(convert_inputs(*inputs))
    return _apply_with_effect(op, inputs) if op._effect else run_op_class(op, *inputs)


def _apply_with_effect(op: OpDef, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    if op._effect == "steps":
        return op._run(inputs)
    if op._effect == "generator" and inputs and isinstance(inputs[0], Tensor):
        from .rng_handles import generator_of

        cell = generator_of(getattr(op, "handle", 0))._cell(inputs[0])
        *results, state = run_op_class(op, *inputs, cell)
        cell._reset(state)
        return tuple(results)
    out = run_op_class(op, *inputs)
    if op._effect == "replace":
        inputs[0]._reset(out[0])
        return (inputs[0],)
    return out


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


def is_grad_attached(tensors: Sequence[Tensor]) -> bool:
    """Whether gradients of one of them are being recorded."""
    return is_tracked(tuple(tensors))


def reshape_cpp(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """The same as ``x.reshape(*shape)``."""
    return x.reshape(*shape)


def transpose_cpp(x: Tensor, axes: Sequence[Any]) -> Tensor:
    """The same as ``x.transpose(*axes)``."""
    return x.transpose(*axes)


def clear_candidates() -> None:
    """Nothing: values that may be computed again are kept."""


#: Functions of tensors -> what they are called in megengine.functional.
_OF_TENSORS = {
    "broadcast_cpp": "broadcast_to",
    "expand_dims_cpp": "expand_dims",
    "get_imag": "imag",
    "get_real": "real",
    "split_cpp": "split",
    "squeeze_cpp": "squeeze",
}


def __getattr__(name: str) -> Any:
    if name in _OF_TENSORS:
        from ... import functional

        return getattr(functional, _OF_TENSORS[name])
    return stand_in(__name__, name)
