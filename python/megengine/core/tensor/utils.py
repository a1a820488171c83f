"""Small argument helpers shared by tensors and functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .. import _amp, _core
from .._core import CompNode, DTypeError, TensorBase, UserError, as_size, get_default_device, ops, sizes_in

if TYPE_CHECKING:
    from ...tensor import Tensor
    from .._imperative_rt.core2 import apply as apply
    from .._imperative_rt.subgraph import interpret_subgraph as interpret_subgraph
    from .._imperative_rt.subgraph import subgraph as subgraph
    from .._imperative_rt.subgraph import subgraph_fn as subgraph_fn

_convert_inputs = True
#: What arrays of 64-bit elements become where no dtype is named.
_IN_32_BITS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype("int64"): np.dtype("int32"),
    np.dtype("float64"): np.dtype("float32"),
}


class ArgumentError(UserError, AssertionError):
    """A broken rule that the original asserts; programs catch it either way."""


class KindError(DTypeError, AssertionError):
    """A value of another kind than the original asserts."""


class AxisError(ArgumentError, IndexError):
    """An axis the tensor does not have: the original asserts here, runs out of a list there."""


@overload
def _normalize_axis(ndim: int, axis: int, reverse: bool = False, who: str = "") -> int: ...
@overload
def _normalize_axis(ndim: int, axis: Iterable[int], reverse: bool = False, who: str = "") -> list[int]: ...
def _normalize_axis(ndim: int, axis: int | Iterable[int], reverse: bool = False, who: str = "") -> int | list[int]:
    """Axes counted from 0: an int for an int, a sorted list for several. ``who`` is named by errors.

    >>> from megengine.core.tensor.utils import _normalize_axis
    >>> _normalize_axis(4, -1), _normalize_axis(4, (-1, 0))
    (3, [0, 3])
    """
    if type(axis) is int or isinstance(axis, (int, np.integer)):
        i = int(axis)
        if not -ndim <= i < ndim:
            valid = f"; valid are {-ndim}..{ndim - 1}" if ndim else ", which has no axis"
            raise AxisError(f"{_of(who)}axis {i} is out of range for a tensor with {ndim} dimensions{valid}.")
        return i + ndim if i < 0 else i
    axes = [_normalize_axis(ndim, a if isinstance(a, int) else _axis_number(a, who), False, who) for a in axis]
    if len(set(axes)) != len(axes):
        raise AxisError(f"{_of(who)}an axis is named twice; got {tuple(axes)}.")
    axes.sort(reverse=reverse)
    return axes


def _of(who: str) -> str:
    return f"{who}: " if who else ""


def _axis_number(axis: Any, who: str) -> int:
    try:
        return int(axis) if isinstance(axis, TensorBase) else operator.index(axis)
    except TypeError:
        raise TypeError(f"{_of(who)}an axis must be an integer; got {axis!r}.") from None


def axes_of(axis: Any, who: str) -> tuple[int, ...]:
    """One axis or several, as a tuple."""
    if type(axis) is int:
        return (axis,)
    try:
        return make_shape_tuple(axis)
    except TypeError:
        raise TypeError(f"{_of(who)}axis must be an integer or several; got {axis!r}.") from None


def make_shape_tuple(*shape: Any) -> tuple[int, ...]:
    """A shape as plain ints, from ints, tuples, arrays or tensors, mixed.

    >>> from megengine.core.tensor.utils import make_shape_tuple
    >>> make_shape_tuple(2, mge.tensor(3)), make_shape_tuple([4, np.int64(5)])
    ((2, 3), (4, 5))
    """
    out: list[int] = []
    for s in shape:
        if type(s) is int:
            out.append(s)
        elif isinstance(s, (list, tuple, range)):
            out.extend(make_shape_tuple(*s))
        elif isinstance(s, TensorBase):
            out.extend(sizes_in(s))
        elif isinstance(s, np.ndarray):
            out.extend(int(v) for v in s.reshape(-1))
        else:
            try:
                out.append(operator.index(s))
            except TypeError:
                raise TypeError(f"shape: sizes must be integers; got {s!r}.") from None
    return tuple(out)


def size_min(a: Any, b: Any) -> Any:
    """The smaller of two sizes, which in a traced call may be tensors."""
    return min(a, b) if type(a) is int and type(b) is int else as_size(ops.minimum(a, b))


def size_max(a: Any, b: Any) -> Any:
    """The larger of two sizes, which in a traced call may be tensors."""
    return max(a, b) if type(a) is int and type(b) is int else as_size(ops.maximum(a, b))


def as_double(x: Any) -> Tensor:
    """A size as float64, which Python's floats are: what is computed from it has the bits that eager mode gives."""
    return ops.typecvt(x, dtype="float64")


def as_index(x: Tensor, size: Any, who: str, what: str = "index", negative: bool = True) -> Tensor:
    """Positions on an axis of ``size`` as int32.

    What a cast to int32 would make another number of, int64 out of range or fractions, is refused by the op, in each
    call of a trace too.
    """
    if x.dtype == np.int32:
        return x
    if x.dtype.kind in "iub" and x.dtype.itemsize < 4:
        return x.astype("int32")
    return ops.wrap_index(x, size=size, negative=negative, who=who, what=what)


def is_fixed(sizes: Any) -> bool:
    """Whether sizes are plain numbers; in a traced call they may be tensors, and checks of them belong to the ops."""
    return type(sizes) is int or (type(sizes) in (tuple, list) and all(type(n) is int for n in sizes))


def with_shape(x: Tensor, shape: Any, error: Callable[[], Exception]) -> Tensor:
    """``x``, which must have this shape; otherwise ``error`` is raised.

    Where sizes may be others in later calls the check is recorded: broadcasting allows sizes of 1 or equal ones, and
    the way back equal counts. Both ops vanish when the sizes are known.
    """
    own = x.shape
    if is_fixed(own) and is_fixed(shape):
        if own != tuple(shape):
            raise error()
        return x
    try:
        return ops.reshape(ops.broadcast_to(x, shape=shape), shape=own)
    except ValueError:
        raise error() from None


def _operands(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a helper was called with: operands one by one, or all in one list or tuple."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else args


def get_device(*inputs: Any) -> CompNode:
    """The device that all tensors in ``inputs`` share, or the default device when there is none.

    >>> from megengine.core.tensor.utils import get_device
    >>> str(get_device(mge.tensor(1, device="cpu1"), 2.0)), str(get_device([1, 2]))
    ('cpu1:0', 'xpux:0')
    """
    found: CompNode | None = None
    for x in _operands(inputs):
        if isinstance(x, TensorBase):
            if found is not None and found != x.device:
                raise ValueError(f"ambiguous device: {found} and {x.device}. Move one with Tensor.to.")
            found = x.device
    return CompNode(get_default_device()) if found is None else found


def result_type(*args: Any) -> np.dtype[Any]:
    """The dtype a constant operand takes beside ``args`` (tensors and arrays first, Python numbers only when stronger).

    >>> from megengine.core.tensor.utils import result_type
    >>> result_type(mge.tensor([1, 2]), 1.5), result_type(mge.tensor([1, 2], dtype="uint8"), 1)
    (dtype('float32'), dtype('uint8'))
    """
    strong: list[np.dtype[Any]] = []
    weak: list[str] = []
    for a in args:
        if isinstance(a, TensorBase):
            strong.append(a.dtype)
        elif isinstance(a, (np.ndarray, np.generic)):
            strong.append(_IN_32_BITS.get(a.dtype, a.dtype))
        elif isinstance(a, np.dtype):
            strong.append(_IN_32_BITS.get(a, a))
        elif type(a) in (bool, int, float):
            weak.append({bool: "bool", int: "int32", float: "float32"}[type(a)])
        else:
            natural = np.asarray(a).dtype
            strong.append(_IN_32_BITS.get(natural, natural))
    return _core.constant_dtype(strong, weak)


def dtype_promotion(*args: Any) -> np.dtype[Any]:
    """``result_type`` of the operands, given one by one or in one list.

    >>> from megengine.core.tensor.utils import dtype_promotion
    >>> dtype_promotion([mge.tensor([1, 2], dtype="uint8"), 1])
    dtype('uint8')
    """
    args = _operands(args)
    if not args:
        raise TypeError("dtype_promotion: needs at least one tensor, array or number.")
    return result_type(*args)


def isscalar(x: Any) -> bool:
    """Whether ``x`` is a number, a string or a tensor without dimensions; no array is, as in ``np.isscalar``."""
    if isinstance(x, TensorBase):
        return x.ndim == 0
    return bool(np.isscalar(x))


def convert_single_value(v: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """``v`` as a tensor; a tensor is cast."""
    make = _core.tensor_type()
    if isinstance(v, make):
        return v if dtype is None else v.astype(dtype)
    return make(v, dtype, device, is_const=True)


def convert_inputs(*args: Any, device: Any = None) -> tuple[Tensor, ...]:
    """Operands as tensors of the dtype that an elementwise op would give its constants."""
    dtype = result_type(*args)
    where = device if device is not None else get_device(args)
    return tuple(a if isinstance(a, TensorBase) else convert_single_value(a, dtype=dtype, device=where) for a in args)  # type: ignore[misc]


def cast_tensors(*args: Any, promote: bool = False) -> tuple[Any, ...]:
    """The arguments with every tensor cast to the low precision of autocast, or with ``promote`` to the high one.

    >>> from megengine.core.tensor.utils import cast_tensors
    >>> low, nothing = cast_tensors(mge.tensor([1.0]), None)
    >>> low
    Tensor([1.], dtype=float16, device=xpux:0)
    """
    dtype = _amp.high_prec_dtype() if promote else _amp.low_prec_dtype()
    return tuple(a.astype(dtype) if isinstance(a, TensorBase) else a for a in args)


def astensor1d(x: Any, *reference: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``x`` (a number, a sequence of numbers and 0-d tensors, an array or a tensor) as a 1-D tensor."""
    make = _core.tensor_type()
    if isinstance(x, make):
        y = x if dtype is None else x.astype(dtype)
        return y.reshape(-1) if y.ndim != 1 else y
    if device is None and reference:
        device = get_device(reference)
    if isinstance(x, Sequence) and any(isinstance(v, TensorBase) for v in x):
        x = [v.numpy().item() if isinstance(v, TensorBase) else v for v in x]
    value = np.asarray(x)
    return make(value.reshape(-1), dtype, device)


def get_convert_inputs() -> bool:
    """Whether operands of different dtypes are promoted (always done by the engine; the switch is kept for callers)."""
    return _convert_inputs


def set_convert_inputs(flag: bool) -> bool:
    """Set the switch and return what it was."""
    global _convert_inputs
    old, _convert_inputs = _convert_inputs, bool(flag)
    return old


_get_convert_inputs, _set_convert_inputs = get_convert_inputs, set_convert_inputs


def without_format(x: Tensor) -> Tensor:
    """The new tensor ``x`` without the memory format that an op gave it: for functions that do not keep it."""
    x.format = "default"
    return x


def __getattr__(name: str) -> Any:
    if name in ("interpret_subgraph", "subgraph", "subgraph_fn"):  # of op classes, which are made above this room
        return getattr(import_module("megengine.core._imperative_rt.subgraph"), name)
    if name == "apply":
        return import_module("megengine.core._imperative_rt.core2").apply
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
