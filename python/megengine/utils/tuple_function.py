"""Arguments that are one number or one per axis."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import partial
from typing import Any

from ..core._core import TensorBase, sizes_in
from ..core.tensor.utils import ArgumentError


def _as_size(v: Any) -> Any:
    """An int; in a traced call a size stays a tensor, and whether it is large enough is for the op to say."""
    return sizes_in(v)[0] if isinstance(v, TensorBase) and v.dtype.kind in "iu" else int(v)


def get_ndtuple(value: int | Iterable[int], who: str = "", *, n: int, allow_zero: bool = True) -> tuple[int, ...]:
    """``n`` ints: a number is repeated, a sequence must have length ``n``. ``who`` is named by errors.

    >>> from megengine.utils.tuple_function import get_ndtuple
    >>> get_ndtuple(3, n=2), get_ndtuple([1, 2], n=2)
    ((3, 3), (1, 2))
    """
    least = 0 if allow_zero else 1
    if type(value) is int and value >= least:  # the usual case, on the way of every layer
        return (value,) * n
    out: tuple[Any, ...]
    who = who or "get_ndtuple"
    if isinstance(value, str):
        way = " kernel_size // 2 keeps the size where kernels are odd." if value == "same" else ""
        raise ArgumentError(f"{who} must be a number{f' or {n} of them' if n > 1 else ''}; got {value!r}.{way}")
    if isinstance(value, Iterable) and getattr(value, "ndim", 1) != 0:  # a 0-d array or tensor is a number
        out = tuple(sizes_in(value) if isinstance(value, TensorBase) else map(_as_size, value))
        if len(out) != n:
            raise ArgumentError(f"{who} must be one number or {n}; expected {n} numbers; got {out}.")
    else:
        out = (_as_size(value),) * n
    if not all(v >= least for v in out if type(v) is int):
        raise ArgumentError(f"{who}: all numbers must be at least {least}; got {value}.")
    return out


def check_size(who: str, value: Any, least: int = 1) -> None:
    """Raises unless ``value`` is an integer of at least ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{who} must be an int; got {value!r}.") from None
    if number < least:
        raise ArgumentError(f"{who} must be at least {least}; got {value}.")


_single = partial(get_ndtuple, n=1, allow_zero=True)
_single_nonzero = partial(get_ndtuple, n=1, allow_zero=False)
_pair = partial(get_ndtuple, n=2, allow_zero=True)
_pair_nonzero = partial(get_ndtuple, n=2, allow_zero=False)
_triple = partial(get_ndtuple, n=3, allow_zero=True)
_triple_nonzero = partial(get_ndtuple, n=3, allow_zero=False)
_quadruple = partial(get_ndtuple, n=4, allow_zero=True)
