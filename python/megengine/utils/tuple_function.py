"""Arguments that are one number or one per axis."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any


def get_ndtuple(value: int | Iterable[int], *, n: int, allow_zero: bool = True) -> tuple[int, ...]:
    """``n`` ints: a number is repeated, a sequence must have length ``n``.

    >>> from megengine.utils.tuple_function import get_ndtuple
    >>> get_ndtuple(3, n=2), get_ndtuple([1, 2], n=2)
    ((3, 3), (1, 2))
    """
    least = 0 if allow_zero else 1
    if type(value) is int and value >= least:  # the usual case, on the way of every layer
        return (value,) * n
    out: tuple[Any, ...]
    if isinstance(value, Iterable):
        out = tuple(int(v) for v in value)
        assert len(out) == n, f"expected {n} numbers; got {out}."
    else:
        out = (int(value),) * n
    assert min(out) >= least, f"all numbers must be at least {least}; got {out}."
    return out


_single = partial(get_ndtuple, n=1, allow_zero=True)
_pair = partial(get_ndtuple, n=2, allow_zero=True)
_pair_nonzero = partial(get_ndtuple, n=2, allow_zero=False)
_triple = partial(get_ndtuple, n=3, allow_zero=True)
_triple_nonzero = partial(get_ndtuple, n=3, allow_zero=False)
_quadruple = partial(get_ndtuple, n=4, allow_zero=True)
