"""Advanced indexing: what is left after ints, slices, None and Ellipsis, which the C type handles itself.

NumPy is the judge, literally: an index is applied to the array of element positions, and the positions feed ``take``.
One integer array on one axis, the common case, goes to ``take`` on that axis without the detour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core import CompNode, TensorBase, get_default_device, ops
from .utils import isscalar

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


def _read(index: TensorBase) -> npt.NDArray[Any]:
    if _core.is_tracing():
        raise NotImplementedError(
            "index: this index needs the value of a tensor, which a trace cannot record yet. One integer tensor on one "
            "axis works, and so does x[mask] = number."
        )
    return index.numpy()


def _host(item: Any) -> Any:
    """An index item as NumPy takes it."""
    if isinstance(item, TensorBase):
        item = _read(item)
    elif isinstance(item, (list, tuple)):
        if any(isinstance(v, TensorBase) for v in item):
            item = [_read(v) if isinstance(v, TensorBase) else v for v in item]
        empty = np.asarray(item)
        item = empty.astype(np.int32) if empty.size == 0 else empty
    elif isinstance(item, slice):
        bounds = (item.start, item.stop, item.step)
        return slice(*(int(_read(b).item()) if isinstance(b, TensorBase) else b for b in bounds))
    if isinstance(item, np.ndarray) and item.dtype.kind not in "iub":
        raise ValueError(f"index: arrays used as indices must be of integers or bools; got {item.dtype}.")
    return item


def _is_full(item: Any) -> bool:
    return isinstance(item, slice) and item.start is None and item.stop is None and item.step is None


def _one_array(items: tuple[Any, ...], ndim: int) -> tuple[int, Any] | None:
    """(axis, index array) when the index is one integer array and full slices."""
    axis = -1
    for i, item in enumerate(items):
        if _is_full(item):
            continue
        if axis >= 0 or not isinstance(item, (TensorBase, np.ndarray, list)):
            return None
        axis = i
    if axis < 0 or len(items) > ndim:
        return None
    index = items[axis]
    if not isinstance(index, TensorBase):
        index = _host(index)
    return (axis, index) if index.dtype.kind in "iu" else None


def _positions(x: TensorBase, items: tuple[Any, ...]) -> npt.NDArray[np.int32]:
    shape = x._tuple_shape
    count = int(np.prod(shape, dtype=np.int64))
    if count > np.iinfo(np.int32).max:
        raise NotImplementedError(f"index: advanced indexing of {count} elements; up to 2**31-1 are supported so far.")
    flat = np.arange(count, dtype=np.int32).reshape(shape)
    # NumPy returns a scalar when nothing is left of the shape.
    return np.asarray(flat[tuple(_host(i) for i in items)])


def getitem(x: Tensor, key: Any) -> Tensor:
    """``x[key]`` for an index that holds arrays, lists, tensors or bools."""
    items = _split_key(key)
    one = _one_array(items, x.ndim)
    if one is not None:
        axis, index = one
        size = x._tuple_shape[axis]
        if isinstance(index, TensorBase):
            return ops.take(x, index.astype("int32"), axis=axis)
        if index.size and not (-size <= index.min() and index.max() < size):
            raise IndexError(f"index: {index.min()}..{index.max()} is out of range for axis {axis} with size {size}.")
        return ops.take(x, _const(index, x), axis=axis)
    return ops.take(x.reshape(-1), _const(_positions(x, items), x), axis=0)


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value`` for an index that holds arrays, lists, tensors or bools; the last of equal positions wins."""
    from ...tensor import Tensor

    items = _split_key(key)
    if not isinstance(value, TensorBase):
        value = Tensor(value, x.dtype, x.device)
    elif value.dtype != x.dtype:
        value = value.astype(x.dtype)
    if len(items) == 1 and isscalar(value) and _is_mask(items[0]):
        x._reset(_masked_fill(x, items[0], cast("Tensor", value)))
        return
    place = _positions(x, items)
    try:
        fits = np.broadcast_shapes(value._tuple_shape, place.shape) == place.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"cannot copy tensor with shape {value._tuple_shape} to the indexed region of shape {place.shape}."
        )
    if place.size == 0:
        return
    count = int(np.prod(x._tuple_shape, dtype=np.int64))
    source = np.arange(count, dtype=np.int32)
    source[place.reshape(-1)] = count + np.arange(place.size, dtype=np.int32)
    values = ops.broadcast_to(value, shape=place.shape).reshape(-1)
    both = ops.concat(x.reshape(-1), values, axis=0)
    x._reset(ops.take(both, _const(source, x), axis=0).reshape(x._tuple_shape))


def _is_mask(item: Any) -> bool:
    return isinstance(item, (TensorBase, np.ndarray)) and item.dtype.kind == "b" and item.ndim > 0


def _masked_fill(x: Tensor, mask: Any, value: Tensor) -> Tensor:
    shape = tuple(mask.shape)
    if shape != x._tuple_shape[: len(shape)]:
        raise IndexError(f"index: mask of shape {shape} does not match the leading axes of {x._tuple_shape}.")
    wide = shape + (1,) * (x.ndim - len(shape))
    cond = mask.reshape(wide) if isinstance(mask, TensorBase) else _const(mask.reshape(wide), x, "bool")
    return ops.where(cond, value, x)


def _const(value: Any, like: TensorBase, dtype: str = "int32") -> Tensor:
    from ...tensor import Tensor

    return Tensor(value, dtype, like.device, is_const=True)


def _filled(shape: tuple[int, ...], value: float, dtype: Any, like: Tensor) -> Tensor:
    """One number in a shape, on the device of ``like``."""
    from ...tensor import Tensor

    if like.device == CompNode(get_default_device()):
        return ops.full(shape=shape, value=value, dtype=dtype)
    return ops.broadcast_to(Tensor(value, dtype, like.device, is_const=True), shape=shape)
