"""Making, joining and rearranging tensors."""

from __future__ import annotations

import functools as _functools
import inspect as _inspect
import math as _math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn, ParamSpec
from typing import overload as _overload

import numpy as np
import numpy.typing as npt

from ..core._core import DTypeError, TensorBase, UserError, as_size, ops, sizes_in
from ..core._habits import unexpected
from ..core.tensor.dtype import is_quantize
from ..core.tensor.indexing import _const, _filled, _iota, _placed, positions_of
from ..core.tensor.qparams import as_integers_of
from ..core.tensor.utils import (
    ArgumentError,
    _normalize_axis,
    as_double,
    as_index,
    axes_of,
    is_fixed,
    make_shape_tuple,
    size_max,
    size_min,
    with_shape,
    without_format,
)
from ..tensor import Tensor, as_device

__all__ = [
    "arange",
    "broadcast_to",
    "complex",
    "concat",
    "cond_take",
    "copy",
    "cumsum",
    "diag",
    "expand_dims",
    "eye",
    "flatten",
    "full",
    "full_like",
    "gather",
    "imag",
    "linspace",
    "meshgrid",
    "non_zero",
    "ones",
    "ones_like",
    "polar",
    "real",
    "repeat",
    "reshape",
    "roll",
    "scatter",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "tile",
    "transpose",
    "where",
    "zeros",
    "zeros_like",
]


def _number(x: Any) -> Any:
    """A number; an integer that is another one in later calls stays a tensor."""
    if not isinstance(x, TensorBase):
        return x
    return sizes_in(x)[0] if x.dtype.kind in "iu" and x.ndim == 0 else x.numpy().item()


def _is_integer(x: Any) -> bool:
    return isinstance(x, (int, np.integer, TensorBase))


def _on(device: Any) -> Tensor:
    """Something to make tensors like, on a device."""
    return Tensor(0, "int32", device, is_const=True)


def _double(x: Any, like: Tensor) -> Tensor:
    """A number as float64, which is what Python computes with."""
    return as_double(x) if isinstance(x, TensorBase) else _const(x, like, "float64")


def _constant(value: npt.NDArray[Any], dtype: Any, device: Any) -> Tensor:
    return Tensor(value, dtype, device, is_const=True)


# ---- making


def arange(
    start: float | Tensor = 0,
    stop: float | Tensor | None = None,
    step: float | Tensor = 1,
    *,
    dtype: str = "float32",
    device: Any = None,
) -> Tensor:
    """Numbers from ``start`` up to but not including ``stop``; float32 unless told otherwise.

    >>> F.arange(5).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    >>> F.arange(1, 7, 2, dtype="int32").tolist()
    [1, 3, 5]
    """
    first, last, by = _number(start), _number(stop), _number(step)
    if last is None:
        first, last = 0, first
    if not isinstance(by, TensorBase) and by == 0:
        raise UserError("arange: step cannot be 0.")
    if any(isinstance(v, TensorBase) for v in (first, last, by)):
        if all(_is_integer(v) for v in (first, last, by)):
            steps = _iota(size_max((last - first + by - (1 if by > 0 else -1)) // by, 0), _on(device))
            return ops.add(ops.mul(steps, by), first).astype(dtype)
        first, last, by = (v.numpy().item() if isinstance(v, TensorBase) else v for v in (first, last, by))
    if not _math.isfinite(first) or not _math.isfinite(last) or not _math.isfinite(by):
        raise UserError(f"arange: start, stop and step must be finite; got {first}, {last}, {by}.")
    count = max(0, _math.ceil((last - first) / by))
    if max(abs(first), abs(last)) <= 2**24 and all(isinstance(v, int) for v in (first, last, by)):
        wide = np.dtype(
            "int32" if dtype == "int32" else "float32"
        )  # holds them all: as below, at a quarter of the cost
        return _constant(np.arange(first, last, by, dtype=wide), dtype, device)
    return _constant(first + by * np.arange(count), dtype, device)


def linspace(
    start: float | Tensor, stop: float | Tensor, num: int | Tensor, *, dtype: str = "float32", device: Any = None
) -> Tensor:
    """``num`` evenly spaced numbers from ``start`` to ``stop``, both included.

    >>> F.linspace(3, 10, 3).tolist()
    [3.0, 6.5, 10.0]
    """
    given = _number(num)
    if isinstance(given, TensorBase):
        like = _on(device)
        a, b = _double(_number(start), like), _double(_number(stop), like)
        steps, gaps = _iota(given, like), size_max(given - 1, 1)
        y = _double(steps, like) * ((b - a) / _double(gaps, like)) + a
        return ops.where(ops.eq(steps, gaps), b, y).astype(dtype)  # the last is met exactly
    count = int(given)
    if count < 0 or count != given:
        raise UserError(f"linspace: num must be an integer of at least 0; got {given}.")
    return _constant(np.linspace(_number(start), _number(stop), count), dtype, device)


def eye(N: int | Sequence[int] | Tensor, M: int | None = None, *, dtype: str = "float32", device: Any = None) -> Tensor:
    """A matrix with ones on the diagonal: ``N`` rows and ``M`` columns, or ``N`` as the shape.

    >>> F.eye(2, 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    shape = make_shape_tuple(N) if M is None else make_shape_tuple(N, M)
    if len(shape) not in (1, 2):
        raise UserError(f"eye: needs one or two sizes; got {shape}.")
    if not is_fixed(shape):
        rows, columns = (_iota(n, _on(device)) for n in (shape[0], shape[-1]))
        return ops.eq(ops.expand_dims(rows, axes=(1,)), columns).astype(dtype)
    if min(shape) < 0:
        raise UserError(f"eye: a size cannot be negative; got {shape}.")
    return _constant(np.eye(shape[0], shape[-1], dtype="float32"), dtype, device)


def _is_exact(value: Any) -> bool:
    """Whether a double, which attributes hold, is another number."""
    return type(value).__name__ == "complex" or isinstance(value, int) and int(float(value)) != value


def full(shape: int | Sequence[int] | Tensor, value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor filled with ``value``, which is broadcast; its dtype is that of ``value`` unless given.

    >>> F.full((2, 2), 7)
    Tensor([[7 7] [7 7]], dtype=int32, device=xpux:0)
    """
    return _filled_with("full", shape, value, dtype, device)


#: Names of dtypes that only NumPy has, beside short ones such as 'f4' and 'int'; the same as ``astype`` takes.
_NUMPY_NAMES = frozenset("float double single half long short byte ubyte ushort".split())


def _filled_with(who: str, shape: Any, value: Any, dtype: Any, device: Any) -> Tensor:
    try:
        sizes = make_shape_tuple(shape)
    except TypeError:
        raise TypeError(f"{who}: sizes must be integers; got {shape!r}.") from None
    if is_fixed(sizes) and any(n < 0 for n in sizes):
        raise UserError(f"{who}: a size cannot be negative; got {sizes}.")
    if type(dtype).__module__ == "torch":
        raise DTypeError(f"{who}: the dtype {dtype} is one of PyTorch; its name is meant, dtype='float32' for example.")
    if type(dtype) is str and (len(dtype) <= 3 or dtype in _NUMPY_NAMES):  # ops know whole names alone
        dtype = np.dtype(dtype)
    if is_quantize(dtype):
        return _filled_with(who, shape, value, "float32", device).astype(dtype)
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (int, float, TensorBase)) and np.ndim(value):
        value = Tensor(value, device=device)
    if isinstance(value, TensorBase) or _is_exact(value) or device is not None and as_device(device) != as_device(None):
        x = value if isinstance(value, TensorBase) else Tensor(value, dtype, device)
        if dtype is not None:
            x = x.astype(dtype)
        y = ops.broadcast_to(x, shape=sizes)
        return y if device is None or y.device == device else y.to(device)
    if dtype is None:
        dtype = Tensor(value).dtype
    return ops.full(shape=sizes, value=float(value), dtype=dtype)


_P = ParamSpec("_P")


def _of_one_shape(make: Callable[_P, Tensor]) -> Callable[_P, Tensor]:
    """Sizes that do not stand in a tuple are told so."""

    @_functools.wraps(make)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Tensor:
        if len(args) > 1:
            name = getattr(make, "__name__", "")
            raise TypeError(f"{name}: sizes go into one tuple, and dtype= has a name: F.{name}({(2, 3)}); got {args}.")
        return make(*args, **kwargs)

    call.__signature__ = _inspect.signature(make)  # type: ignore[attr-defined]  # for those who do not unwrap
    return call


@_of_one_shape
def zeros(shape: int | Sequence[int] | Tensor, *, dtype: str = "float32", device: Any = None) -> Tensor:
    """A tensor of zeros.

    >>> F.zeros((1, 2)).tolist()
    [[0.0, 0.0]]
    """
    return _filled_with("zeros", shape, 0.0, dtype, device)


@_of_one_shape
def ones(shape: int | Sequence[int] | Tensor, *, dtype: str = "float32", device: Any = None) -> Tensor:
    """A tensor of ones.

    >>> F.ones((1, 2)).tolist()
    [[1.0, 1.0]]
    """
    return _filled_with("ones", shape, 1.0, dtype, device)


def full_like(inp: Tensor, value: Any) -> Tensor:
    """``value`` in the shape and dtype of ``inp``.

    >>> F.full_like(mge.tensor([1, 2]), 5).tolist()
    [5, 5]
    """
    if _is_exact(value):
        value = Tensor(value, inp.dtype, inp.device)
    if isinstance(value, TensorBase):
        return ops.broadcast_to(value.astype(inp.dtype), shape=inp.shape)
    return ops.fill_like(inp, value=float(value))


def zeros_like(inp: Tensor) -> Tensor:
    """Zeros in the shape and dtype of ``inp``.

    >>> F.zeros_like(mge.tensor([1, 2])).tolist()
    [0, 0]
    """
    return ops.fill_like(inp, value=0.0)


def ones_like(inp: Tensor) -> Tensor:
    """Ones in the shape and dtype of ``inp``.

    >>> F.ones_like(mge.tensor([1, 2])).tolist()
    [1, 1]
    """
    return ops.fill_like(inp, value=1.0)


def meshgrid(*inputs: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Grids of coordinates from vectors of them; ``"xy"`` puts the first vector along the second axis, as NumPy does.

    >>> x, y = F.meshgrid(mge.tensor([1, 2, 3]), mge.tensor([4, 5]))
    >>> x.tolist(), y.tolist()
    ([[1, 2, 3], [1, 2, 3]], [[4, 4, 4], [5, 5, 5]])
    """
    if indexing not in ("xy", "ij"):
        raise UserError(f"meshgrid: indexing must be xy or ij; got {indexing!r}.")
    if any(x.ndim > 1 for x in inputs):
        raise UserError(f"meshgrid: needs vectors; got shapes {[x.shape for x in inputs]}.")
    inputs = tuple(x if x.ndim else x.reshape(1) for x in inputs)
    n = len(inputs)
    order = list(range(n))
    if indexing == "xy" and n >= 2:
        order[0], order[1] = 1, 0
    shape = [0] * n
    for i, x in enumerate(inputs):
        shape[order[i]] = x.shape[0]
    out = []
    for i, x in enumerate(inputs):
        line = [1] * n
        line[order[i]] = x.shape[0]
        out.append(ops.broadcast_to(x.reshape(line), shape=tuple(shape)))
    return tuple(out)


def diag(inp: Tensor, k: int = 0) -> Tensor:
    """A matrix with ``inp`` on its ``k``-th diagonal, or the diagonal of a matrix.

    >>> F.diag(mge.tensor([1, 2])).tolist(), F.diag(mge.tensor([[1, 2], [3, 4]]), k=1).tolist()
    ([[1, 0], [0, 2]], [2])
    """
    if inp.ndim == 0:
        inp = inp.reshape(1)
    if inp.ndim == 2:
        rows, columns = inp.shape
        count = size_max(size_min(rows - max(-k, 0), columns - max(k, 0)), 0)
        place = _iota(count, inp) * (columns + 1) + (k if k >= 0 else -k * columns)
        return ops.take(inp.reshape(-1), place, axis=0)
    if inp.ndim != 1:
        raise UserError(f"diag: needs a vector or a matrix; got shape {inp.shape}.")
    n = inp.shape[0] + abs(k)
    first, end = (k, inp.shape[0] * n) if k >= 0 else (-k * n, n * n)
    flat = _filled((n * n,), 0.0, inp.dtype, inp)
    return _placed(flat, inp, (first,), (end,), (n + 1,), python=True).reshape(n, n)


# ---- shapes


def reshape(inp: Tensor, target_shape: Any) -> Tensor:
    """The same elements in another shape; one size may be -1.

    >>> F.reshape(mge.tensor([1, 2, 3, 4]), (2, -1)).tolist()
    [[1, 2], [3, 4]]
    """
    return as_integers_of(inp, inp.reshape(target_shape))


def transpose(inp: Tensor, pattern: Any) -> Tensor:
    """Reorder axes; see ``Tensor.transpose`` for the pattern.

    >>> F.transpose(mge.tensor([[1, 2, 3]]), (1, 0)).tolist()
    [[1], [2], [3]]
    """
    return inp.transpose(tuple(pattern) if isinstance(pattern, str) else pattern)


def swapaxes(inp: Tensor, axis1: int, axis2: int) -> Tensor:
    """Exchange two axes.

    >>> F.swapaxes(mge.tensor(np.zeros((2, 3, 4))), 0, -1).shape
    (4, 3, 2)
    """
    perm = list(range(inp.ndim))
    i, j = (_normalize_axis(inp.ndim, axis, False, "swapaxes") for axis in (axis1, axis2))
    perm[i], perm[j] = j, i
    return ops.transpose(inp, perm=tuple(perm))


def flatten(inp: Tensor, start_axis: int = 0, end_axis: int = -1, **other: NoReturn) -> Tensor:
    """Merge the axes from ``start_axis`` to ``end_axis`` into one.

    >>> F.flatten(mge.tensor(np.zeros((2, 3, 4))), 1).shape
    (2, 12)
    """
    if other:
        raise unexpected("flatten", other, flatten)
    return as_integers_of(inp, inp.flatten(start_axis, end_axis))


def expand_dims(inp: Tensor, axis: int | Sequence[int], **other: NoReturn) -> Tensor:
    """Insert axes of size 1 at the positions they shall have in the result.

    >>> F.expand_dims(mge.tensor([1, 2]), 0).shape
    (1, 2)
    """
    if other:
        raise unexpected("expand_dims", other, expand_dims)
    axes = (axis,) if type(axis) is int else axes_of(axis, "expand_dims")
    if len(axes) == 1 or len(set(axes)) == len(axes):
        return ops.expand_dims(inp, axes=axes)
    places = sorted(_normalize_axis(inp.ndim + len(axes), a, False, "expand_dims") for a in axes)
    for at in places:  # one after the other: an axis may be named twice
        inp = ops.expand_dims(inp, axes=(min(at, inp.ndim),))
    return inp


def squeeze(inp: Tensor, axis: int | Sequence[int] | None = None, **other: NoReturn) -> Tensor:
    """Remove axes of size 1; all of them when none is named.

    >>> F.squeeze(mge.tensor(np.zeros((1, 1, 3, 1))), (0, -1)).shape
    (1, 3)
    """
    if other:
        raise unexpected("squeeze", other, squeeze)
    if type(axis) is int:
        return ops.squeeze(inp, axes=(axis,))
    if axis is None:
        sizes = inp.shape
        if is_fixed(sizes):
            return ops.squeeze(inp)
        axis = tuple(i for i, n in enumerate(sizes) if n == 1)  # how many axes are left is no size
    axes = axes_of(axis, "squeeze")
    if len(axes) > 1:
        axes = tuple(_normalize_axis(inp.ndim, axes, False, "squeeze"))  # an axis named twice is an error
    return ops.squeeze(inp, axes=axes) if axes else ops.copy(inp)


def broadcast_to(inp: Tensor, shape: Any) -> Tensor:
    """Repeat ``inp`` up to ``shape``; None in the shape keeps the size there.

    >>> F.broadcast_to(mge.tensor([1, 2]), (2, None)).tolist()
    [[1, 2], [1, 2]]
    """
    if isinstance(shape, int):
        shape = (shape,)
    if isinstance(shape, (list, tuple)) and None in shape:
        skip = len(shape) - inp.ndim
        if any(s is None for s in shape[: max(skip, 0)]):
            raise ValueError(f"broadcast_to: None cannot stand for a new axis; shape {shape}, input {inp.shape}.")
        shape = tuple(inp.shape[i - skip] if s is None else s for i, s in enumerate(shape))
    sizes = make_shape_tuple(shape)
    if any(type(s) is int and s < 0 for s in sizes):
        raise ValueError(f"broadcast_to: a size cannot be negative; got {sizes}. None keeps the size of the input.")
    return ops.broadcast_to(inp, shape=sizes)


# ---- joining and splitting


def _gathered(inps: Sequence[Tensor], device: Any, who: str) -> Sequence[Tensor]:
    if not isinstance(inps, (list, tuple)):
        inps = list(inps)  # of an array or a tensor its rows
    if device is None and inps:
        for x in inps:
            if type(x) is not Tensor:
                break
        else:
            return inps
    if any(x is None for x in inps):
        number = next(i for i, x in enumerate(inps) if x is None)
        raise TypeError(f"{who}: all inputs must be tensors; number {number} is None.")
    tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in inps]
    if not tensors:
        raise ValueError(f"{who}: needs at least one tensor; the list is empty.")
    return tensors if device is None else [x if x.device == device else x.to(device) for x in tensors]


def concat(inps: Sequence[Tensor], axis: int = 0, device: Any = None, **other: NoReturn) -> Tensor:
    """Join tensors along an axis they have; scalars count as vectors of one element.

    >>> F.concat([mge.tensor([[1, 2]]), mge.tensor([[3, 4]])]).tolist()
    [[1, 2], [3, 4]]
    """
    if other:
        raise unexpected("concat", other, concat)
    if isinstance(axis, TensorBase) and not isinstance(inps, (list, tuple)):
        raise TypeError("concat: tensors go into one list, F.concat([x, y]); got a Tensor for axis.")
    tensors = _gathered(inps, device, "concat")
    try:
        return ops.concat(*tensors, axis=axis)
    except Exception:  # rare, so that looking for scalars first would cost more than joining small tensors
        if all(x.ndim for x in tensors):
            raise
    return ops.concat(*(x if x.ndim else x.reshape(1) for x in tensors), axis=axis)


def stack(inps: Sequence[Tensor], axis: int = 0, device: Any = None, **other: NoReturn) -> Tensor:
    """Join tensors of one shape along a new axis.

    >>> F.stack([mge.tensor([1, 2]), mge.tensor([3, 4])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    if other:
        raise unexpected("stack", other, stack)
    if isinstance(axis, TensorBase) and not isinstance(inps, (list, tuple)):
        raise TypeError("stack: tensors go into one list, F.stack([x, y]); got a Tensor for axis.")
    tensors = _gathered(inps, device, "stack")
    try:
        return ops.concat(*(ops.expand_dims(x, axes=(axis,)) for x in tensors), axis=axis)
    except Exception:
        shapes = {x._tuple_shape for x in tensors}
        if len(shapes) > 1:
            raise UserError(
                f"stack: all tensors must have one shape; got {', '.join(map(str, sorted(shapes)))}. F.concat joins "
                "along an axis that may differ."
            ) from None
        raise


def split(
    inp: Tensor, nsplits_or_sections: int | Sequence[int], axis: int = 0, **other: NoReturn
) -> tuple[Tensor, ...]:
    """Cut a tensor along ``axis``.

    Args:
        inp: the tensor.
        nsplits_or_sections: a number of nearly equal parts, larger ones first; or the positions to cut at.
        axis: where to cut.

    >>> [x.shape[0] for x in F.split(F.arange(10), 3)], [x.tolist() for x in F.split(F.arange(3), [1])]
    ([4, 3, 3], [[0.0], [1.0, 2.0]])
    """
    if other:
        raise unexpected("split", other, split)
    at = _normalize_axis(inp.ndim, axis, False, "split")
    size = inp.shape[at]
    given = nsplits_or_sections
    if isinstance(given, (int, np.integer)) or (isinstance(given, (TensorBase, np.ndarray)) and given.ndim == 0):
        n = int(given)  # of a tensor, such as a size in a trace: the number of results is part of the program
        if n <= 0:
            raise ValueError(f"split: the number of parts must be above 0; got {n}.")
        if n > size:
            raise ValueError(f"split: cannot cut an axis of size {size} into {n} parts.")
        cuts: list[Any] = [0]
        for i in range(n):
            cuts.append(cuts[-1] + (size - cuts[-1] + n - i - 1) // (n - i))
    else:
        cuts = [0, *make_shape_tuple(given), size]
        for i, (a, b) in enumerate(zip(cuts, cuts[1:])):
            if type(a) is int and type(b) is int:
                if a > b:
                    raise ValueError(
                        f"split: Invalid nsplits_or_secions: {given}; the positions must rise from 0 to {size}, the "
                        f"size of axis {axis}."
                    )
            else:  # the op looks, in each call
                first = a if isinstance(a, TensorBase) else _const(a, inp)
                cuts[i] = as_size(ops.wrap_index(first, size=b + 1, negative=False, who="split", what="cut"))
    front = (slice(None),) * at
    return tuple(without_format(inp[front + (slice(a, b),)]) for a, b in zip(cuts, cuts[1:]))


def repeat(inp: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Repeat each element ``repeats`` times, along ``axis`` or in the flattened tensor.

    >>> F.repeat(mge.tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """
    if isinstance(repeats, Tensor):
        (repeats,) = make_shape_tuple(repeats)
    if isinstance(repeats, TensorBase):  # the op looks, in each call
        repeats = as_size(ops.check_range(repeats, low=1.0, high=2.0**31 - 1, who="repeat", what="repeats"))
    else:
        if repeats < 1 or int(repeats) != repeats:
            raise ArgumentError(f"repeat: repeats must be an integer of at least 1; got {repeats}.")
        repeats = int(repeats)
    if axis is None:
        inp, axis = inp.reshape(-1), 0
    at = _normalize_axis(inp.ndim, axis, False, "repeat")
    shape = inp.shape
    wide = ops.broadcast_to(ops.expand_dims(inp, axes=(at + 1,)), shape=(*shape[: at + 1], repeats, *shape[at + 1 :]))
    return wide.reshape(*shape[:at], shape[at] * repeats, *shape[at + 1 :])


def tile(inp: Tensor, reps: int | Sequence[int]) -> Tensor:
    """Lay copies of ``inp`` side by side, ``reps[i]`` of them along axis ``i``.

    >>> F.tile(mge.tensor([1, 2]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    times = make_shape_tuple(reps)
    if any(type(n) is int and n < 0 for n in times):
        raise UserError(f"tile: reps cannot be negative; got {times}.")
    lead = len(times) - inp.ndim
    times = (1,) * -lead + times
    x = ops.expand_dims(inp, axes=tuple(range(lead))) if lead > 0 else inp
    for at, n in enumerate(times):
        if type(n) is int and n == 1:
            continue
        shape = x.shape
        wide = ops.broadcast_to(ops.expand_dims(x, axes=(at,)), shape=(*shape[:at], n, *shape[at:]))
        x = wide.reshape(*shape[:at], n * shape[at], *shape[at + 1 :])
    return ops.copy(x) if x is inp else x


def roll(inp: Tensor, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Move elements along an axis; what leaves at the end enters at the front.

    >>> F.roll(mge.tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    if axis is None:
        by = shift if isinstance(shift, int) else sum(make_shape_tuple(shift))
        return roll(inp.reshape(-1), by, 0).reshape(inp.shape)
    shifts, axes = make_shape_tuple(shift), make_shape_tuple(axis)
    if len(shifts) == 1 and len(axes) > 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: needs one shift per axis; got shifts {shifts} and axes {axes}.")
    x = inp
    for s, a in zip(shifts, axes):
        at = _normalize_axis(inp.ndim, a, False, "roll")
        size = inp.shape[at]
        by = s % size_max(size, 1)
        if type(by) is not int or by:
            front = (slice(None),) * at
            x = ops.concat(x[front + (slice(size - by, None),)], x[front + (slice(0, size - by),)], axis=at)
    return ops.copy(x) if x is inp else x


def cumsum(inp: Tensor, axis: int) -> Tensor:
    """Running sums along ``axis``, in the dtype of ``inp``; a scalar counts as a vector, as in NumPy.

    >>> F.cumsum(mge.tensor([[1, 2, 3]]), 1).tolist()
    [[1, 3, 6]]
    """
    return ops.cumsum(inp if inp.ndim else inp.reshape(1), axis=axis)


# ---- selection


@_overload
def where(mask: Tensor) -> tuple[Tensor, ...]: ...
@_overload
def where(mask: Tensor, x: Any, y: Any) -> Tensor: ...
def where(mask: Tensor, x: Any = None, y: Any = None) -> Any:
    """``x`` where ``mask`` is true and ``y`` elsewhere, broadcast; with the mask alone the positions that are true.

    >>> F.where(mge.tensor([True, False]), mge.tensor([1, 2]), mge.tensor([3, 4])).tolist()
    [1, 4]
    """
    if not isinstance(mask, TensorBase):
        raise TypeError(f"where: the mask must be a tensor; got {type(mask).__name__}.")
    if mask.dtype != np.bool_:
        raise ValueError(f"where: the mask must be a bool tensor; got {mask.dtype}. x != 0 makes one.")
    if x is None and y is None:
        return non_zero(mask, as_tuple=True)
    for v in (x, y):
        if not isinstance(v, (TensorBase, int, float, np.ndarray, np.generic)):
            raise TypeError(f"where: x and y must be tensors; got {type(v).__name__}.")
    return ops.where(mask, x, y)


@_overload
def non_zero(condition: Tensor, as_tuple: Literal[False] = False) -> Tensor: ...
@_overload
def non_zero(condition: Tensor, as_tuple: bool) -> Any: ...
def non_zero(condition: Tensor, as_tuple: bool = False) -> Any:
    """The positions of elements that are not 0: int32 ``(n, ndim)``, or one vector per axis.

    >>> F.non_zero(mge.tensor([[0, 1], [2, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    x = condition if condition.ndim else condition.reshape(1)
    rows = ops.unravel(positions_of(x), shape=x.shape)
    return tuple(rows[i] for i in range(x.ndim)) if as_tuple else ops.transpose(rows, perm=(1, 0))


def cond_take(mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The elements of ``x`` where ``mask`` is true, and their positions in the flattened tensor.

    >>> v, i = F.cond_take(mge.tensor([True, False, True]), mge.tensor([1.0, 2.0, 3.0]))
    >>> v.tolist(), i.tolist()
    ([1.0, 3.0], [0, 2])
    """
    if not isinstance(x, TensorBase) or not isinstance(mask, TensorBase):
        raise TypeError("cond_take: needs a mask tensor and a data tensor.")
    if mask.dtype != np.bool_:
        raise ValueError(f"cond_take: the mask must be a bool tensor; got {mask.dtype}.")
    mask = with_shape(
        mask,
        x.shape,
        lambda: UserError(f"cond_take: the mask has shape {mask._tuple_shape} but the data {x._tuple_shape}."),
    )
    place = positions_of(mask)
    return ops.take(x.reshape(-1), place, axis=0), place


_INT32 = np.dtype("int32")


def _check_gather(inp: Tensor, axis: int, index: Tensor, who: str) -> int:
    """The axis counted from the front, after the shapes were checked."""
    if index.dtype.kind not in "iu":
        raise UserError(f"{who}: the index must be of integers; got {index.dtype}. Cast it with astype('int32').")
    if inp.ndim != index.ndim:
        raise ValueError(f"{who}: the index needs {inp.ndim} dimensions like the input; got {index.ndim}.")
    at = _normalize_axis(inp.ndim, axis, False, who)
    sizes = zip(index.shape, inp.shape) if is_fixed(index.shape) and is_fixed(inp.shape) else ()  # else the op looks
    for i, (n, size) in enumerate(sizes):
        if (i != at or who == "scatter") and n > size:
            raise UserError(f"{who}: the index shape {index.shape} exceeds the input shape {inp.shape} on axis {i}.")
    return at


def gather(inp: Tensor, axis: int, index: Tensor) -> Tensor:
    """Elements picked along ``axis``: ``out[i][j] = inp[index[i][j]][j]`` for axis 0.

    >>> F.gather(mge.tensor([[1, 2], [3, 4]]), 1, mge.tensor([[0, 0], [1, 0]])).tolist()
    [[1, 1], [4, 3]]
    """
    if index.dtype is _INT32:  # the op checks the rest
        return ops.gather(inp, index, axis=_normalize_axis(inp.ndim, axis, False, "gather"))
    at = _check_gather(inp, axis, index, "gather")
    return ops.gather(inp, as_index(index, inp.shape[at], "gather"), axis=at)


def scatter(inp: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """Put the elements of ``source`` into ``inp`` along ``axis``, in place, and return ``inp``.

    >>> F.scatter(F.zeros((2, 3)), 1, mge.tensor([[2], [0]]), mge.tensor([[5.0], [6.0]])).tolist()
    [[0.0, 0.0, 5.0], [6.0, 0.0, 0.0]]
    """
    source = with_shape(
        source,
        index.shape,
        lambda: ValueError(
            f"scatter: index and source must have one shape; got {index._tuple_shape} and {source._tuple_shape}."
        ),
    )
    at = _check_gather(inp, axis, index, "scatter")
    places = []
    for i, n in enumerate(index.shape):
        line = [1] * inp.ndim
        line[i] = n
        places.append(as_index(index, inp.shape[at], "scatter") if i == at else _iota(n, inp).reshape(line))
    value = source if source.dtype == inp.dtype else source.astype(inp.dtype)
    inp._reset(ops.index_set(inp, value, *places, axes=tuple(range(inp.ndim)), at=0))
    return inp


def copy(inp: Tensor, device: Any = None) -> Tensor:
    """A copy, on another device when one is named.

    >>> F.copy(mge.tensor([1, 2])).tolist()
    [1, 2]
    """
    return ops.copy(inp) if device is None else inp.to(device)


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """A complex64 tensor from its parts, which are float32 and broadcast to one shape.

    Complex tensors have ``+``, ``-``, ``*``, negation, ``reshape`` and slices; ``real`` and ``imag`` take them apart.

    >>> z = F.complex(mge.tensor([1.0]), mge.tensor([2.0]))
    >>> (z * z).numpy()
    array([-3.+4.j], dtype=complex64)
    """
    re, im = (x if isinstance(x, Tensor) else Tensor(x, dtype="float32") for x in (real, imag))
    if re._tuple_shape != im._tuple_shape:
        try:
            shape = np.broadcast_shapes(re._tuple_shape, im._tuple_shape)
        except ValueError:
            return ops.complex(re, im)  # whose error names the shapes
        re, im = broadcast_to(re, shape), broadcast_to(im, shape)
    return ops.complex(re, im)


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """A complex64 tensor from lengths and angles.

    >>> F.polar(mge.tensor([2.0]), mge.tensor([0.0])).numpy()
    array([2.+0.j], dtype=complex64)
    """
    return ops.complex(abs * ops.cos(angle), abs * ops.sin(angle))


def real(complex: Tensor) -> Tensor:
    """The real part of a complex tensor.

    >>> F.real(F.complex(mge.tensor([1.0]), mge.tensor([2.0]))).tolist()
    [1.0]
    """
    return ops.real(complex)


def imag(complex: Tensor) -> Tensor:
    """The imaginary part of a complex tensor.

    >>> F.imag(F.complex(mge.tensor([1.0]), mge.tensor([2.0]))).tolist()
    [2.0]
    """
    return ops.imag(complex)
