"""Reductions, products, norms, order statistics."""

from __future__ import annotations

import math as _math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..core._core import TensorBase, UserError, ops
from ..core._habits import unexpected
from ..core.tensor.indexing import _filled
from ..core.tensor.utils import _normalize_axis, make_shape_tuple, size_min, with_shape
from ..tensor import Tensor
from ._einsum import einsum as einsum
from .elemwise import clip, maximum

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "cross",
    "dot",
    "isinf",
    "isnan",
    "matinv",
    "matmul",
    "max",
    "mean",
    "min",
    "norm",
    "normalize",
    "prod",
    "sign",
    "sort",
    "std",
    "sum",
    "svd",
    "topk",
    "var",
]

Axis = int | Sequence[int] | None


def _as_tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(x)


def isnan(inp: Tensor) -> Tensor:
    """Where ``inp`` is not a number, as bools.

    >>> F.isnan(mge.tensor([1.0, float("nan")])).tolist()
    [False, True]
    """
    return ops.isnan(inp)


def isinf(inp: Tensor) -> Tensor:
    """Where ``inp`` is infinite, as bools.

    >>> F.isinf(mge.tensor([1.0, float("-inf")])).tolist()
    [False, True]
    """
    return ops.isinf(inp)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1, in the dtype of ``x``.

    >>> F.sign(mge.tensor([-3, 0, 5])).tolist()
    [-1, 0, 1]
    """
    return ops.sign(x)


def sum(inp: Tensor, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
    """The sum over ``axis``, or over everything.

    >>> F.sum(mge.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1).tolist()
    [3.0, 7.0]
    """
    if other:
        raise unexpected("sum", other, sum)
    return _as_tensor(inp)._reduce("sum", axis, keepdims)


def prod(inp: Tensor, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
    """The product over ``axis``, or over everything.

    >>> F.prod(mge.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1).tolist()
    [2.0, 12.0]
    """
    if other:
        raise unexpected("prod", other, prod)
    return _as_tensor(inp)._reduce("prod", axis, keepdims)


def mean(inp: Tensor, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
    """The mean over ``axis``, or over everything; integers and float16 give float32.

    >>> F.mean(mge.tensor([[1, 2], [3, 4]]), axis=0).tolist()
    [2.0, 3.0]
    """
    if other:
        raise unexpected("mean", other, mean)
    return _as_tensor(inp)._reduce("mean", axis, keepdims)


def var(inp: Tensor, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
    """The population variance: the mean squared distance from the mean.

    >>> F.var(mge.tensor([[1.0, 3.0], [2.0, 2.0]]), axis=1).tolist()
    [1.0, 0.0]
    """
    if other:
        raise unexpected("var", other, var)
    x = _as_tensor(inp)
    if x.dtype in (np.int32, np.int64):  # which float32 does not hold
        return var(x.astype("float64"), axis, keepdims).astype("float32")
    centre = x.mean() if axis is None else x.mean(axis, keepdims=True)
    return ops.square(x - centre).mean(axis, keepdims)


def std(inp: Tensor, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
    """The population standard deviation.

    >>> F.std(mge.tensor([1.0, 3.0])).item()
    1.0
    """
    if other:
        raise unexpected("std", other, std)
    return ops.sqrt(var(inp, axis, keepdims))


def min(inp: Tensor, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
    """The smallest element along ``axis``, or of all; NaN wins.

    >>> F.min(mge.tensor([[1, 2], [3, 4]]), axis=0).tolist()
    [1, 2]
    """
    if other:
        raise unexpected("min", other, min)
    return _as_tensor(inp)._reduce("min", axis, keepdims)


def max(inp: Tensor, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
    """The largest element along ``axis``, or of all; NaN wins.

    >>> F.max(mge.tensor([[1, 2], [3, 4]]), axis=0).tolist()
    [3, 4]
    """
    if other:
        raise unexpected("max", other, max)
    return _as_tensor(inp)._reduce("max", axis, keepdims)


def _arg(who: str, op: Any, inp: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    x = _as_tensor(inp)
    if axis is None:
        assert not keepdims, f"{who}: keepdims=True needs an axis."
        return op(x.reshape(-1), axis=0, keepdims=False)  # type: ignore[no-any-return]
    if isinstance(axis, Iterable):
        for a in _normalize_axis(x.ndim, axis, True, who):
            x = op(x, axis=a, keepdims=keepdims)
        return x
    ndim = x.ndim
    at = axis if 0 <= axis < ndim else _normalize_axis(ndim, axis, False, who)
    return op(x, axis=at, keepdims=keepdims)  # type: ignore[no-any-return]


def argmax(inp: Tensor, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
    """The position of the largest element, int32; without an axis in the flattened tensor.

    Several axes are applied one after the other, the highest first, to the positions found before.

    >>> F.argmax(mge.tensor([[1, 5], [7, 2]]), axis=1).tolist()
    [1, 0]
    """
    if other:
        raise unexpected("argmax", other, argmax)
    return _arg("argmax", ops.argmax, inp, axis, keepdims)


def argmin(inp: Tensor, axis: Axis = None, keepdims: bool = False, **other: NoReturn) -> Tensor:
    """The position of the smallest element, int32; without an axis in the flattened tensor.

    >>> F.argmin(mge.tensor([[1, 5], [7, 2]]), axis=1).tolist()
    [0, 1]
    """
    if other:
        raise unexpected("argmin", other, argmin)
    return _arg("argmin", ops.argmin, inp, axis, keepdims)


def norm(
    inp: Tensor, ord: float | None = None, axis: int | None = None, keepdims: bool = False, **other: NoReturn
) -> Tensor:
    """The length of vectors along ``axis``.

    Args:
        inp: the vectors.
        ord: the order of the norm; None is 2, 0 counts (int32) the elements that are not 0, ``inf`` takes the largest.
        axis: may be None for one vector only.
        keepdims: keep the axis with size 1.

    >>> F.norm(mge.tensor([3.0, 4.0])).item()
    5.0
    """
    if other:
        raise unexpected("norm", other, norm)
    if axis is None and inp.ndim != 1:
        raise TypeError(f"norm: needs an axis for a tensor with {inp.ndim} dimensions.")
    if axis is None:
        axis = 0
    p = 2.0 if ord is None else ord
    if p == 0:
        return (inp != 0).sum(axis, keepdims)
    if inp.dtype.kind in "iu" and abs(p) != _math.inf:
        inp = inp.astype("float32")  # squares and sums of integers wrap
    if p == 1:
        return ops.abs(inp).sum(axis, keepdims)
    if p == 2:
        return ops.sqrt(ops.square(inp).sum(axis, keepdims))
    if p == _math.inf:
        return ops.relu(ops.abs(inp).max(axis, keepdims))  # of no elements: 0, not the -inf of max
    if p == -_math.inf:
        return ops.abs(inp).min(axis, keepdims)
    return ops.pow(ops.pow(ops.abs(inp), p).sum(axis, keepdims), 1.0 / p)


def normalize(
    inp: Tensor, ord: float | None = None, axis: int | None = None, eps: float = 1e-12, **other: NoReturn
) -> Tensor:
    """Vectors along ``axis`` scaled to length 1; the length is taken as at least ``eps``.

    >>> F.normalize(mge.tensor([3.0, 4.0])).numpy()
    array([0.6, 0.8], dtype=float32)
    """
    if other:
        raise unexpected("normalize", other, normalize)
    if axis is None:
        return inp / clip(norm(inp, ord), lower=eps)
    return inp / clip(norm(inp, ord, axis, keepdims=True), lower=eps)


def matmul(
    inp1: Tensor, inp2: Tensor, transpose_a: bool = False, transpose_b: bool = False, compute_mode: str = "default"
) -> Tensor:
    """The matrix product, as ``np.matmul``: batch axes broadcast, vectors are taken as a row or a column.

    Args:
        inp1: the left operand.
        inp2: the right operand.
        transpose_a: transpose the last two axes of ``inp1`` first.
        transpose_b: transpose the last two axes of ``inp2`` first.
        compute_mode: ``"default"`` or ``"float32"``; sums are in float32 either way.

    >>> F.matmul(mge.tensor([[1.0, 2.0]]), mge.tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    a = inp1 if isinstance(inp1, Tensor) else Tensor(inp1)  # written out: two calls cost a quarter of a small product
    b = inp2 if isinstance(inp2, Tensor) else Tensor(inp2)
    if a.ndim >= 2 and b.ndim >= 2:
        if transpose_a or transpose_b:
            return ops.matmul(a, b, ta=transpose_a, tb=transpose_b)
        return a @ b  # costs half of what a call with keywords does
    na, nb = a.ndim, b.ndim
    assert na > 0 and nb > 0, f"matmul: a 0-d tensor has no matrix product; got {a.shape} and {b.shape}. Use *."
    if na == 1 and nb == 1:
        return dot(a, b)
    if na == 1:
        y = ops.matmul(a.reshape(1, -1), b, ta=False, tb=transpose_b)
        return ops.squeeze(y, axes=(-2,))
    y = ops.matmul(a, b.reshape(-1, 1), ta=transpose_a, tb=False)
    return ops.squeeze(y, axes=(-1,))


def dot(inp1: Tensor, inp2: Tensor) -> Tensor:
    """The sum of products of two vectors; a 0-d operand counts for every element.

    >>> F.dot(mge.tensor([1.0, 2.0]), mge.tensor([3.0, 4.0])).item()
    11.0
    """
    a, b = _as_tensor(inp1), _as_tensor(inp2)
    assert a.ndim <= 1 and b.ndim <= 1, f"dot: needs vectors; got {a.shape} and {b.shape}. Use matmul."
    if a.ndim == 1 and b.ndim == 1:
        b = with_shape(b, a.shape, lambda: UserError(f"dot: the vectors differ in length, {len(a)} and {len(b)}."))
    return ops.mul(a, b).sum()


def cross(a: Tensor, b: Tensor, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    """The cross product of vectors of length 3; 1-D vectors may have length 2.

    Args:
        a: the first vectors.
        b: the second vectors.
        axisa: the axis of ``a`` that holds the vectors.
        axisb: the same for ``b``.
        axisc: the axis of the result that holds the vectors.
        axis: all three at once.

    >>> F.cross(mge.tensor([1.0, 0.0, 0.0]), mge.tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    if axis is not None:
        axisa = axisb = axisc = axis

    def parts(v: Tensor, at: int, who: str) -> list[Tensor]:
        if v.ndim == 1 and v.shape[0] == 2:
            v = ops.concat(v, _filled((1,), 0.0, v.dtype, v), axis=0)
        i = _normalize_axis(v.ndim, at, False, "cross")
        if v.shape[i] != 3:
            raise UserError(f"cross: {who} must have length 3 along axis {at}; got {v.shape}.")
        front = (slice(None),) * i
        return [v[front + (k,)] for k in range(3)]

    a0, a1, a2 = parts(a, axisa, "a")
    b0, b1, b2 = parts(b, axisb, "b")
    rows = [a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0]
    at = _normalize_axis(rows[0].ndim + 1, axisc, False, "cross")
    return ops.concat(*(ops.expand_dims(r, axes=(at,)) for r in rows), axis=at)


def argsort(inp: Tensor, descending: bool = False, **other: NoReturn) -> Tensor:
    """The positions, int32, that sort ``inp`` along its last axis; equal elements keep their order.

    Args:
        inp: 1-D or 2-D.
        descending: the largest first.

    >>> F.argsort(mge.tensor([3.0, 1.0, 2.0])).tolist()
    [1, 2, 0]
    """
    if other:
        raise unexpected("argsort", other, argsort)
    assert inp.ndim in (1, 2), f"argsort: needs 1 or 2 dimensions; got {inp.shape}. F.sort takes any number."
    return ops.sort(inp, axis=-1, descending=descending)[1]


def sort(inp: Tensor, descending: bool = False, dim: int = -1) -> tuple[Tensor, Tensor]:
    """``inp`` in order along an axis, and the positions (int32) the elements came from.

    Equal elements keep their order in both directions, and NaN counts as larger than every number.

    Args:
        inp: a tensor with at least one dimension.
        descending: the largest first.
        dim: the axis.

    >>> y, i = F.sort(mge.tensor([3.0, 1.0, 2.0]))
    >>> y.tolist(), i.tolist()
    ([1.0, 2.0, 3.0], [1, 2, 0])
    """
    y, index = ops.sort(inp, axis=dim, descending=descending)
    return y, index


def topk(
    inp: Tensor, k: int, descending: bool = True, kth_only: bool = False, no_sort: bool = False, **other: NoReturn
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest elements of each row, and their positions (int32); of equal elements the first.

    Args:
        inp: 1-D, or 2-D with rows along the last axis.
        k: how many; more than there are means all, with a warning. A negative number turns ``descending`` round.
        descending: False takes the smallest, smallest first.
        kth_only: only the last of the ``k``, one per row, with the position of the first element that equals it.
        no_sort: leave the elements in the order they have in ``inp``.

    >>> y, i = F.topk(mge.tensor([2.0, 5.0, 3.0, 4.0]), 2)
    >>> y.tolist(), i.tolist()
    ([5.0, 4.0], [1, 3])
    >>> F.topk(mge.tensor([2.0, 5.0, 3.0, 4.0]), -2)[0].tolist()
    [2.0, 3.0]
    >>> F.topk(mge.tensor([2.0, 5.0, 3.0, 4.0]), 2, kth_only=True)[0].item()
    4.0
    """
    if other:
        raise unexpected("topk", other, topk)
    assert inp.ndim in (1, 2), f"topk: needs 1 or 2 dimensions; got {inp.shape}."
    (count,) = make_shape_tuple(k) if isinstance(k, TensorBase) else (int(k),)
    if type(count) is int and count <= 0:
        if count == 0:
            raise UserError("topk: k must not be 0; k elements are taken, the other end's for a negative k.")
        count, descending = -count, not descending
    size = inp.shape[-1]
    if type(count) is int and type(size) is int and count > size:
        text = f"topk: k is {k}, but the rows of {inp.shape} have {size} elements; all of them are returned."
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    count = size_min(count, size)
    if not kth_only:
        y, index = ops.topk(inp, k=count, axis=-1, descending=descending, sorted=not no_sort)
        return y, index
    if type(size) is int and size == 0:
        raise UserError(f"topk: a row without elements has no k-th one; got {inp.shape}.")
    y, index = (v[..., -1] for v in ops.topk(inp, k=count, axis=-1, descending=descending))
    same = ops.eq(inp, ops.expand_dims(y, axes=(-1,)))
    # NaN equals nothing: its own position stands.
    first = ops.argmax(same.astype("int32"), axis=-1, keepdims=False)
    return y, ops.where(ops.isnan(y), index, first) if y.dtype.kind == "f" else first


def matinv(inp: Tensor) -> Tensor:
    """The inverse of square matrices ``(..., n, n)``; a singular one raises an error.

    >>> F.matinv(mge.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return ops.matinv(_as_tensor(inp))


def svd(inp: Tensor, full_matrices: bool = False, compute_uv: bool = True) -> tuple[Any, Tensor, Any]:
    """The singular value decomposition ``U, S, Vh`` of matrices: ``inp = U * S @ Vh``.

    Singular values fall; the largest entry of each column of ``U`` is positive. Gradients exist where the singular
    values are different and not 0, and for the square or thin matrices only, since the rest is not unique.

    Args:
        inp: (..., m, n).
        full_matrices: square ``U`` (m, m) and ``Vh`` (n, n) instead of (m, k) and (k, n), k = min(m, n).
        compute_uv: False leaves ``None`` in place of ``U`` and ``Vh``.

    >>> u, s, vh = F.svd(mge.tensor([[3.0, 0.0], [0.0, -4.0]]))
    >>> s.tolist()
    [4.0, 3.0]
    """
    s, u, vh = ops.svd(_as_tensor(inp), full_matrices=full_matrices and compute_uv)
    return (u, s, vh) if compute_uv else (None, s, None)


def _check_non_finite(inps: Iterable[Tensor], scale: float = 1.0) -> Tensor:
    """Multiply the tensors by ``scale`` in place and tell, as an int32 scalar, whether any holds inf or NaN."""
    bad: Tensor | None = None
    for x in inps:
        x._reset(x * scale)
        # x - x is 0 for finite numbers and NaN for the others.
        here = ops.isnan(x - x).astype("int32").max() if x.size != 0 else Tensor(0, device=x.device)
        bad = here if bad is None else maximum(bad, here)
    return Tensor(0) if bad is None else bad
