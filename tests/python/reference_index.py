"""What the ops of op_cases_index.py mean, in NumPy, written for clarity: order, picking and placing by index."""

from __future__ import annotations

import numpy as np
from reference import one_hot_index


def sort(x, axis=-1, descending=False):
    """Stable in both directions; NaN counts as largest."""
    if descending:  # the last of equals comes first in a reversed ascending sort, so positions are turned twice
        flipped = np.flip(x, axis)
        order = x.shape[axis] - 1 - np.flip(np.argsort(flipped, axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


def topk(x, k=1, axis=-1, descending=True, sorted=True):
    order = np.take(sort(x, axis, descending)[1], np.arange(k), axis)
    if not sorted:
        order = np.sort(order, axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


def _along(shape, index, axis):
    grid = list(np.ix_(*(np.arange(n) for n in index.shape)))
    grid[axis] = index
    return tuple(grid)


def gather(x, index, axis=0):
    return x[_along(x.shape, index, axis)]


def gather_bwd(gy, index, axis=0, x_shape=()):
    gx = np.zeros(x_shape, gy.dtype)
    np.add.at(gx, _along(x_shape, index, axis), gy)
    return gx


def _key(x, indices, axes):
    """x with the indexed axes in front, and the index for them."""
    rest = [i for i in range(x.ndim) if i not in axes]
    return np.transpose(x, (*axes, *rest)), tuple(np.broadcast_arrays(*indices))


def _moved(y, depth, at):
    """The index dimensions of y, which are in front, moved behind `at` others."""
    front, rest = list(range(depth)), list(range(depth, y.ndim))
    return np.transpose(y, (*rest[:at], *front, *rest[at:]))


def _moved_back(v, depth, at):
    order = [*range(at, at + depth), *range(at), *range(at + depth, v.ndim)]
    return np.transpose(v, order)


def index_get(x, *indices, axes=(), at=0):
    front, key = _key(x, indices, axes)
    return _moved(front[key], key[0].ndim, at)


def index_get_last(x, *indices, axes=(), at=0):
    front, key = _key(x, indices, axes)
    y = front[key].copy()
    seen = set()
    for p in reversed(list(np.ndindex(*key[0].shape))):
        where = tuple(int(k[p]) % front.shape[i] for i, k in enumerate(key))
        if where in seen:
            y[p] = 0
        seen.add(where)
    return _moved(y, key[0].ndim, at)


def _put(x, v, indices, axes, at, add):
    out = x.copy()
    front, key = _key(out, indices, axes)  # a view of out
    values = _moved_back(v, key[0].ndim, at)
    for p in np.ndindex(*key[0].shape):
        where = tuple(int(k[p]) for k in key)
        front[where] = front[where] + values[p] if add else values[p]
    return out


def index_set(x, v, *indices, axes=(), at=0):
    return _put(x, v, indices, axes, at, add=False)


def index_incr(x, v, *indices, axes=(), at=0):
    return _put(x, v, indices, axes, at, add=True)


def indexing_one_hot(x, index, axis=1):
    return np.squeeze(np.take_along_axis(x, one_hot_index(x, index, axis), axis), axis)


def set_one_hot(x, index, v, axis=1):
    y = x.copy()
    np.put_along_axis(y, one_hot_index(x, index, axis), np.expand_dims(v, axis), axis)
    return y


def take(x, index, axis=0):
    return np.take(x, index, axis)


def take_bwd(gy, index, axis=0, x_shape=()):
    gx = np.zeros(x_shape, gy.dtype)
    moved = np.moveaxis(gx, axis, 0)
    flat = np.moveaxis(gy.reshape(x_shape[:axis] + (index.size,) + x_shape[axis + 1 :]), axis, 0)
    np.add.at(moved, index.reshape(-1), flat)
    return gx
