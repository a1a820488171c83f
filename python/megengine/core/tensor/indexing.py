"""Advanced indexing: what is left after ints, slices, None and Ellipsis, which the C type handles itself.

An index is split into what slices (``x[1:, None]``) and what picks (``x[i, j]``). Slices are taken first, then the
integer arrays go to ``take`` or ``index_get`` as they are, so a trace records them and gradients flow. A mask is turned
into the positions of its true elements; how many there are depends on its values (``positions_of``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core import CompNode, TensorBase, get_default_device, ops
from .dtype import is_quantize
from .utils import as_index, is_fixed, isscalar, with_shape

if TYPE_CHECKING:
    from ...tensor import Tensor

_PLAIN = (slice, type(None), type(Ellipsis))


def _split_key(key: Any) -> tuple[Any, ...]:
    """The index as a tuple of items; a list that holds slices, None or ... means a tuple, as in old NumPy."""
    if isinstance(key, tuple):
        return key
    if isinstance(key, list) and any(isinstance(k, _PLAIN) for k in key):
        return tuple(key)
    return (key,)


def positions_of(x: Tensor) -> Tensor:
    """Where ``x`` is not 0, in the flattened tensor. How many there are is a size that depends on values."""
    index, count = ops.nonzero(x)
    return index[:count]


def _host(item: Any) -> Any:
    """An index item without lists and float arrays; slices with numbers for bounds."""
    if isinstance(item, (list, tuple, range)):
        if any(isinstance(v, TensorBase) for v in item):
            item = [v.numpy() if isinstance(v, TensorBase) else v for v in item]
        array = np.asarray(item)
        item = array.astype(np.int32) if array.size == 0 else array
    if isinstance(item, (np.ndarray, TensorBase)) and item.dtype.kind not in "iub":
        raise _core.UserError(
            f"index: arrays used as indices must be of integers or bools; got {item.dtype}. Cast it: i.astype('int32')."
        )
    return item


def _is_array(item: Any) -> bool:
    return isinstance(item, (np.ndarray, TensorBase))


class _Plan:
    """``x[key]`` in two steps: ``x[basic]``, then the arrays along ``axes`` of that, placed at ``at``."""

    def __init__(self) -> None:
        self.basic: list[Any] = []
        self.arrays: list[Any] = []
        self.axes: list[int] = []
        self.at = 0


def _expand(items: tuple[Any, ...], ndim: int) -> list[Any]:
    """Items with lists made arrays, masks made positions, and the ellipsis written out."""
    out: list[Any] = []
    used = 0
    for raw in items:
        item = _host(raw)
        if isinstance(item, (bool, np.bool_)):
            raise _ScalarBool
        if _is_array(item) and item.dtype.kind == "b":
            if item.ndim == 0:
                raise _ScalarBool
            out.append(item)
            used += item.ndim
        else:
            out.append(item)
            used += 0 if item is None or item is Ellipsis else 1
    if sum(1 for i in out if i is Ellipsis) > 1:
        raise _core.OpIndexError("an index can only have a single ellipsis ('...')")
    if used > ndim:
        raise _core.OpIndexError(f"too many indices for tensor: tensor is {ndim}-dimensional, but {used} were indexed")
    if not any(i is Ellipsis for i in out):
        out.append(Ellipsis)
    at = next(n for n, i in enumerate(out) if i is Ellipsis)
    out[at : at + 1] = [slice(None)] * (ndim - used)
    return out


def _number(item: Any) -> int:
    try:
        return operator.index(item)
    except TypeError:
        raise TypeError(
            f"index: {item!r} is no integer, slice, ..., None, mask or array of integers, which x[...] takes."
        ) from None


class _ScalarBool(Exception):
    """``x[True]``, or a 0-d mask: a new axis of size 0 or 1."""


def _make_plan(x: TensorBase, items: tuple[Any, ...]) -> _Plan:
    plan = _Plan()
    shape = x.shape
    axis = 0  # of x
    place = 0  # of x[basic]
    results = 0  # slices and new axes so far
    runs = 0  # groups of neighbouring ints and arrays
    inside = False
    for item in _expand(items, x.ndim):
        picks = _is_array(item) or not (item is None or isinstance(item, slice))
        if picks and not inside:
            runs += 1
            if runs == 1:
                plan.at = results
        inside = picks
        if not picks:
            plan.basic.append(item)
            axis += item is not None
            place += 1
            results += 1
        elif not _is_array(item):
            plan.basic.append(_number(item))  # an int drops its axis
            axis += 1
        else:
            for array in _positions(item, shape, axis):
                plan.basic.append(slice(None))
                plan.arrays.append(array)
                plan.axes.append(place)
                axis += 1
                place += 1
    if runs > 1:
        plan.at = 0
    return plan


def _positions(item: Any, shape: Any, axis: int) -> list[Any]:
    """The integer arrays, one per axis, that an integer array or a mask at ``axis`` stands for."""
    if item.dtype.kind != "b":
        if isinstance(item, np.ndarray) and item.size and is_fixed(shape):  # otherwise the op looks
            size = shape[axis]
            if not (-size <= item.min() and item.max() < size):
                raise _core.OpIndexError(
                    f"index: {item.min()}..{item.max()} is out of range for axis {axis} with size {size}."
                )
        return [item]
    covered = shape[axis : axis + item.ndim]

    def misfit() -> _core.OpIndexError:
        return _core.OpIndexError(
            f"index: mask of shape {tuple(item.shape)} does not match the axes {tuple(covered)} it indexes."
        )

    if not isinstance(item, TensorBase):
        if item.shape != tuple(int(n) for n in covered):
            raise misfit()
        return list(np.nonzero(item))
    mask = with_shape(cast("Tensor", item), covered, misfit)
    place = positions_of(mask)
    if mask.ndim == 1:
        return [place]
    rows = ops.unravel(place, shape=mask.shape)
    # Not rows[i]: that reshapes to a number of elements, which is another one in the next call.
    return [ops.squeeze(rows[i : i + 1], axes=(0,)) for i in range(mask.ndim)]


def _tensors(plan: _Plan, y: Tensor) -> list[Tensor]:
    """The arrays of a plan as int32 tensors that index ``y``."""
    return [
        as_index(cast("Tensor", a), y.shape[axis], "index") if isinstance(a, TensorBase) else _const(a, y)
        for a, axis in zip(plan.arrays, plan.axes)
    ]


def _sliced(x: Tensor, plan: _Plan) -> Tensor:
    whole = all(isinstance(b, slice) and b == slice(None) for b in plan.basic)
    return x if whole else x[tuple(plan.basic)]


def getitem(x: Tensor, key: Any) -> Tensor:
    """``x[key]`` for an index that holds arrays, lists, tensors or bools."""
    items = _split_key(key)
    try:
        plan = _make_plan(x, items)
    except _ScalarBool:
        flat = _flat_positions(x, items)
        return ops.take(x.reshape(-1), _const(flat, x), axis=0)
    y = _sliced(x, plan)
    if not plan.arrays:
        return y if y is not x else ops.copy(x)
    index = _tensors(plan, y)
    if len(index) == 1 and plan.axes[0] == plan.at:
        return ops.take(y, index[0], axis=plan.at)
    return ops.index_get(y, *index, axes=tuple(plan.axes), at=plan.at)


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value`` for an index that holds arrays, lists, tensors or bools; the last of equal positions wins."""
    items = _split_key(key)
    if not isinstance(value, TensorBase):
        value = _core.tensor_type()(value, x.dtype, x.device)
    elif value.dtype != x.dtype:
        value = value.astype(x.dtype)
    if len(items) == 1 and isscalar(value) and _is_mask(items[0]):
        x._reset(_masked_fill(x, items[0], cast("Tensor", value)))
        return
    try:
        plan = _make_plan(x, items)
    except _ScalarBool:
        _set_flat(x, items, cast("Tensor", value))
        return
    if not plan.arrays:  # a 0-d index array was read as an int
        x[tuple(plan.basic)] = value
        return
    _put(x, plan, cast("Tensor", value), ops.index_set)


def _put(x: Tensor, plan: _Plan, value: Tensor, put: Callable[..., Tensor]) -> None:
    """``value`` where the plan says; ``put`` is the op that sets or adds there."""
    y = _sliced(x, plan)
    index = _tensors(plan, y)
    if is_fixed(y.shape) and all(is_fixed(i.shape) for i in index):
        shape = [n for i, n in enumerate(y.shape) if i not in plan.axes]
        shape[plan.at : plan.at] = np.broadcast_shapes(*(i.shape for i in index))
        v = _fitted(value, tuple(shape))
        if 0 in shape:
            return
    else:
        region = ops.index_get(y.detach(), *index, axes=tuple(plan.axes), at=plan.at)  # only its sizes are used
        lead = tuple(range(value.ndim - region.ndim))
        v = ops.broadcast_to(ops.squeeze(value, axes=lead) if lead else value, shape=region.shape)
    changed = put(y, v, *index, axes=tuple(plan.axes), at=plan.at)
    if y is x:
        x._reset(changed)
    else:
        x[tuple(plan.basic)] = changed


def _fitted(value: Tensor, region: tuple[int, ...]) -> Tensor:
    """``value`` broadcast to the region; NumPy drops leading ones."""
    shape = value._tuple_shape
    while len(shape) > len(region) and shape[0] == 1:
        shape = shape[1:]
    try:
        fits = np.broadcast_shapes(shape, region) == region
    except ValueError:
        fits = False
    if not fits:
        raise _core.UserError(
            f"cannot copy tensor with shape {value._tuple_shape} to the indexed region of shape {region}."
        )
    if shape != value._tuple_shape:
        value = value.reshape(shape)
    return ops.broadcast_to(value, shape=region)


def _flat_positions(x: TensorBase, items: tuple[Any, ...]) -> npt.NDArray[np.int64]:
    """Positions in the flattened tensor, found by NumPy: for indices with single bools, which nobody has in a loop."""
    shape = x._tuple_shape
    flat = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    hosted = (_host(i) for i in items)
    return np.asarray(flat[tuple(i.numpy() if isinstance(i, TensorBase) else i for i in hosted)])


def _set_flat(x: Tensor, items: tuple[Any, ...], value: Tensor) -> None:
    place = _flat_positions(x, items)
    v = _fitted(value, place.shape)
    if place.size:
        flat = ops.index_set(x.reshape(-1), v.reshape(-1), _const(place.reshape(-1), x), axes=(0,), at=0)
        x._reset(flat.reshape(x._tuple_shape))


def _is_mask(item: Any) -> bool:
    return isinstance(item, (TensorBase, np.ndarray)) and item.dtype.kind == "b" and item.ndim > 0


def _masked_fill(x: Tensor, mask: Any, value: Tensor) -> Tensor:
    cond = cast("Tensor", mask if isinstance(mask, TensorBase) else _const(mask, x, "bool"))

    def misfit() -> _core.OpIndexError:
        return _core.OpIndexError(
            f"index: mask of shape {tuple(mask.shape)} does not match the leading axes of {x._tuple_shape}."
        )

    if cond.ndim > x.ndim:
        raise misfit()
    cond = with_shape(cond, x.shape[: cond.ndim], misfit)
    more = tuple(range(cond.ndim, x.ndim))
    return ops.where(ops.expand_dims(cond, axes=more) if more else cond, value, x)


def _const(value: Any, like: TensorBase, dtype: str = "int32") -> Tensor:
    return _core.tensor_type()(value, dtype, like.device, is_const=True)


def _iota(n: Any, like: TensorBase) -> Tensor:
    """0 .. n - 1, int32, on the device of ``like``."""
    if type(n) is int:
        return _const(np.arange(n), like)
    return ops.cumsum(_filled((n,), 1.0, "int32", cast("Tensor", like)), axis=0, exclusive=True)


def _filled(shape: tuple[int, ...], value: float, dtype: Any, like: Tensor) -> Tensor:
    """One number in a shape, on the device of ``like``."""
    if is_quantize(dtype):
        return _filled(shape, value, "float32", like).astype(dtype)
    if hasattr(type(like), "_beside"):  # a variable of a graph: the sizes follow those of the inputs
        beside: Any = like
        return ops.broadcast_to(beside._beside(_core.tensor_type()(value, dtype, like.device)), shape=shape)
    if like.device == CompNode(get_default_device()):
        return ops.full(shape=shape, value=value, dtype=dtype)
    return ops.broadcast_to(_core.tensor_type()(value, dtype, like.device, is_const=True), shape=shape)


def _placed(base: Tensor, value: Tensor, starts: Any, stops: Any, steps: Any, python: bool = False) -> Tensor:
    """``value`` in a slice of ``base``, a tensor that nobody else has and that is written in place."""
    where = {"axes": tuple(range(base.ndim)), "starts": starts, "stops": stops, "steps": steps, "python": python}
    # A node of a graph has no memory; two numbers of 4 bits share a byte, and kernels see them widened.
    if type(value) is not _core.tensor_type() or is_quantize(base.dtype):
        return ops.set_slice(base, value, **where)
    ops.set_slice.update((base,), base, value, **where)
    return base
