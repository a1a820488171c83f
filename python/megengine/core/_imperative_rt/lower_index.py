"""What the op classes that index mean: slices, integer arrays, and their outer products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tensor import Tensor
from .._core import ops
from ..tensor import indexing
from .rules import INT_MAX, RULES, rule


def _key(op: Any, x: Tensor, values: Sequence[Tensor]) -> tuple[Any, ...]:
    """The Python index that ``items`` and the tensors after them spell."""
    rest = list(values)
    key: list[Any] = [slice(None)] * x.ndim
    for axis, begin, end, step, idx in op.items:
        got = [rest.pop(0) if flag else None for flag in (begin, end, step)]
        if idx:
            v = rest.pop(0)
            key[axis] = v if v.ndim else int(v.item())
        else:
            key[axis] = slice(*(None if g is None else int(g.item()) for g in got))
    return tuple(key)


@rule("Subtensor")
def _subtensor(op: Any, x: Tensor, *values: Tensor) -> Tensor:
    if not op.slice_items:
        return x[_key(op, x, values)]
    rest = list(values)
    key: list[Any] = [slice(None)] * x.ndim
    for (axis, *flags), given in zip(op.items, op.slice_items):
        got: list[int | None] = []
        for flag, value in zip(flags, given):
            if not flag:
                got.append(None)
            elif value in (INT_MAX, -(2**31)):
                got.append(int(rest.pop(0).item()))
            else:
                got.append(int(value))
        key[axis] = got[3] if flags[3] else slice(*got[:3])
    return x[tuple(key)]


@rule("SetSubtensor")
def _set_subtensor(op: Any, x: Tensor, value: Tensor, *values: Tensor) -> Tensor:
    y = ops.copy(x)
    y[_key(op, x, values)] = value
    return y


@rule("IncrSubtensor")
def _incr_subtensor(op: Any, x: Tensor, value: Tensor, *values: Tensor) -> Tensor:
    key = _key(op, x, values)
    y = ops.copy(x)
    y[key] = x[key] + value
    return y


RULES["IndexingMultiAxisVec"] = lambda op, x, *v: x[_key(op, x, v)]
RULES["IndexingSetMultiAxisVec"] = _set_subtensor


@rule("IndexingIncrMultiAxisVec")
def _incr_multi_axis_vec(op: Any, x: Tensor, value: Tensor, *values: Tensor) -> Tensor:
    """x with value added at the positions; positions named twice take both."""
    y = ops.copy(x)
    indexing.incritem(y, _key(op, x, values), value)
    return y


# ---- outer products: each axis has its own list of positions, or with Batched each image its own row of them


def _mesh(op: Any, x: Tensor, values: Sequence[Tensor], batched: bool) -> Tensor:
    key = list(_key(op, x, values))
    arrays = {axis: k for axis, k in enumerate(key) if isinstance(k, Tensor)}
    for axis, index in arrays.items():
        key[axis] = slice(None)
        if index.ndim != (2 if batched else 1):
            raise ValueError(
                f"{type(op).__name__}: positions along axis {axis} need "
                f"{'a row for each image' if batched else 'one dimension'}; got shape {index.shape}."
            )
    if batched and any(axis == 0 for axis, *_ in op.items):
        raise ValueError(f"{type(op).__name__}: axis 0 counts the images and cannot be indexed.")
    ints = [axis for axis, k in enumerate(key) if isinstance(k, int)]
    if not all(isinstance(k, slice) and k == slice(None) for k in key):
        x = x[tuple(key)]
    for axis, index in arrays.items():
        at = axis - sum(i < axis for i in ints)
        x = _take_rows(x, index, at) if batched else ops.take(x, index.astype("int32"), axis=at)
    return x


def _take_rows(x: Tensor, index: Tensor, axis: int) -> Tensor:
    """y[b, .., j, ..] = x[b, .., index[b, j], ..]"""
    image = indexing._const([[b] for b in range(x.shape[0])], x)
    y = ops.index_get(x, image, index.astype("int32"), axes=(0, axis), at=0)
    order = list(range(2, y.ndim))
    return ops.transpose(y, perm=(0, *order[: axis - 1], 1, *order[axis - 1 :]))


def _mesh_put(batched: bool, put: Any) -> Any:
    """Set or add: the positions in the flat tensor are what the same index picks from a table of them."""

    def run(op: Any, x: Tensor, value: Tensor, *values: Tensor) -> Tensor:
        table = indexing._const(range(x.size), x).reshape(x.shape)
        places = _mesh(op, table, values, batched)
        flat = indexing._fitted(value, places.shape).reshape(-1)
        y: Tensor = put(x.reshape(-1), flat, places.reshape(-1), axes=(0,), at=0)
        return y.reshape(x.shape)

    return run


for _prefix, _batched in (("", False), ("Batched", True)):
    RULES[f"{_prefix}MeshIndexing"] = lambda op, x, *v, batched=_batched: _mesh(op, x, v, batched)
    RULES[f"{_prefix}SetMeshIndexing"] = _mesh_put(_batched, ops.index_set)
    RULES[f"{_prefix}IncrMeshIndexing"] = _mesh_put(_batched, ops.index_incr)
