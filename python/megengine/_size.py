"""Sizes inside a traced call.

With ``symbolic_shape=True``, the default, ``x.shape`` is a tensor while a call is recorded: what is computed from it is
computed anew in calls with other sizes, and a dumped model follows the size of its input. ``Size`` behaves like the
tuple of ints, or the int, that it is in eager mode. Where Python needs the number itself (``int()``, ``if``,
``range``, ``/``, floats), the recording is for that number alone, and other sizes are recorded anew.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .core import _core
from .core._core import ops
from .tensor import Tensor


def _is_int(x: Any) -> bool:
    return (isinstance(x, (int, np.integer)) and not isinstance(x, bool)) or type(x) is Size


def _exact(op: Callable[..., Any], number: Callable[[Any, Any], Any], swap: bool = False) -> Callable[..., Any]:
    """An operation that stays among integers: it is recorded."""

    def method(self: Size, other: Any) -> Any:
        a, b = (other, self) if swap else (self, other)
        if _is_int(other):
            return _core.as_size(op(a, b))
        if self.ndim or isinstance(other, _core.TensorBase):
            return op(a, b)
        return number(a.number if swap is False else a, b.number if swap else b)

    return method


def _inexact(op: Callable[..., Any], number: Callable[[Any, Any], Any], swap: bool = False) -> Callable[..., Any]:
    """An operation that gives what Python's numbers give: beside tensors a tensor, else a number."""

    def method(self: Size, other: Any) -> Any:
        a, b = (other, self) if swap else (self, other)
        if self.ndim or (isinstance(other, _core.TensorBase) and type(other) is not Size):
            return op(a, b)
        return number(*(x.number if type(x) is Size else x for x in (a, b)))

    return method


def _by_number(operation: Callable[..., Any]) -> Callable[..., Any]:
    """What Python computes with ints alone, as it does there: never one with tensors."""

    def method(self: Size, *others: Any) -> Any:
        return operation(self.number, *(o.number if type(o) is Size else o for o in others))

    return method


def _ordered(tensors: Callable[..., Any], numbers: Callable[..., Any]) -> Callable[..., Any]:
    """Shapes are ordered as tuples are, a size as a tensor is."""

    def method(self: Size, other: Any) -> Any:
        if self.ndim and (isinstance(other, (tuple, list)) or (type(other) is Size and other.ndim)):
            return numbers(self.number, other.number if type(other) is Size else tuple(map(int, other)))
        return tensors(self, other)

    return method


def _reduced(name: str) -> Callable[..., Any]:
    """``np.prod(x.shape)`` asks this method: a size still, as far as it is made of integers."""
    tensors, numbers = getattr(Tensor, name), getattr(np, name)

    def method(self: Size, axis: Any = None, keepdims: bool = False, **others: Any) -> Any:
        if "out" not in others:
            return tensors(self, axis, keepdims, **others)
        if name == "mean" or any(v is not None for v in others.values()):
            return numbers(self.number, axis=axis, **others)
        return _core.as_size(tensors(self, axis, keepdims))

    return method


class Size(Tensor):
    """``x.shape`` of a traced call, or one of its sizes."""

    @property
    def number(self) -> Any:
        """What it is in this call; the recording is then for this number alone."""
        value = self.numpy()
        return int(value) if value.ndim == 0 else tuple(int(v) for v in value)

    def __repr__(self) -> str:
        return repr(self.number)

    def __getitem__(self, key: Any) -> Any:
        return _core.as_size(super().__getitem__(key))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return item in self.number

    def __add__(self, other: Any) -> Any:
        if self.ndim and isinstance(other, (tuple, list)):
            return (*self, *other)
        return _add(self, other)

    def __radd__(self, other: Any) -> Any:
        if self.ndim and isinstance(other, (tuple, list)):
            return (*other, *self)
        return _radd(self, other)

    __sub__ = _exact(ops.sub, operator.sub)
    __rsub__ = _exact(ops.sub, operator.sub, True)
    __mul__ = _exact(ops.mul, operator.mul)
    __rmul__ = _exact(ops.mul, operator.mul, True)
    __floordiv__ = _exact(ops.floor_div, operator.floordiv)
    __rfloordiv__ = _exact(ops.floor_div, operator.floordiv, True)
    __mod__ = _exact(ops.mod, operator.mod)
    __rmod__ = _exact(ops.mod, operator.mod, True)
    __truediv__ = _inexact(ops.div, operator.truediv)
    __rtruediv__ = _inexact(ops.div, operator.truediv, True)
    __pow__ = _inexact(ops.pow, operator.pow)
    __rpow__ = _inexact(ops.pow, operator.pow, True)

    def __neg__(self) -> Any:
        return _core.as_size(ops.neg(self))

    def __eq__(self, other: Any) -> Any:
        if self._key is not None and isinstance(other, (int, tuple, Size)):
            return self._key == (other.number if type(other) is Size else other)
        if self.ndim and (isinstance(other, (tuple, list)) or (type(other) is Size and other.ndim)):
            # The recording is for shapes that are equal, or are not, not for these.
            if len(self) != len(other) or len(self) == 0:
                return len(self) == len(other)
            if type(other) is Size:
                return bool(ops.reduce(ops.eq(self, other).astype("int32"), mode="min"))
            return all(bool(a == b) for a, b in zip(self, other))
        return NotImplemented if other is None or isinstance(other, str) else ops.eq(self, other)

    def __ne__(self, other: Any) -> Any:
        same = self.__eq__(other)
        return not same if isinstance(same, bool) else same if same is NotImplemented else ops.ne(self, other)

    __lt__ = _ordered(Tensor.__lt__, operator.lt)
    __le__ = _ordered(Tensor.__le__, operator.le)
    __gt__ = _ordered(Tensor.__gt__, operator.gt)
    __ge__ = _ordered(Tensor.__ge__, operator.ge)
    __and__ = __rand__ = _by_number(operator.and_)
    __or__ = __ror__ = _by_number(operator.or_)
    __xor__ = __rxor__ = _by_number(operator.xor)
    __invert__ = _by_number(operator.invert)
    __trunc__ = _by_number(operator.index)
    index = _by_number(tuple.index)
    count = _by_number(tuple.count)
    prod, sum, mean, max, min = map(_reduced, ("prod", "sum", "mean", "max", "min"))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    # A key of dicts and sets like the number: from there on it is one, also for what is stored under it.
    _key: Any = None
    keys = 0  # how many were asked for in this process

    def __hash__(self) -> int:
        if self._key is None:
            self._key = self.number
            Size.keys += 1
        return hash(self._key)

    def __reduce__(self) -> Any:
        """A copy or a pickle is the number."""
        return (tuple, (self.number,)) if self.ndim else (int, (self.number,))


_add = _exact(ops.add, operator.add)
_radd = _exact(ops.add, operator.add, True)

_core.set_size_type(Size)
