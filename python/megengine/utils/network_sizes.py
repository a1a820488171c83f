"""The sizes of variables of a graph, where ``set_symbolic_shape(True)`` makes them variables."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ._graph_objects import VarNode


def as_sizes(x: Any) -> Any:
    """A variable that holds sizes, as an object that compares as they do."""
    if type(x) is VarNode:
        x.__class__ = Sizes
    return x


def _number(x: Any) -> Any:
    if isinstance(x, Sizes):
        x = x.numpy().tolist()
    return tuple(map(_number, x)) if isinstance(x, (tuple, list)) else x


def _of_sizes(name: str) -> Callable[[Sizes, Any], Any]:
    compute = getattr(VarNode, name)

    def method(self: Sizes, other: Any) -> Any:
        y = compute(self, other)
        return as_sizes(y) if isinstance(other, (Sizes, int, np.integer)) else y

    return method


def _compared(name: str) -> Callable[[Sizes, Any], Any]:
    compute, compare = getattr(VarNode, f"__{name}__"), getattr(operator, name)

    def method(self: Sizes, other: Any) -> Any:
        if isinstance(other, (Sizes, tuple, list, int, np.integer)):
            a, b = _number(self), _number(other)
            if isinstance(a, tuple) == isinstance(b, tuple):
                return bool(compare(a, b))
        return compute(self, other)

    return method


class Sizes(VarNode):
    """``x.shape`` of a variable, or a size that is computed of such.

    It is a variable, so what is computed from it follows the sizes of the inputs, and for the declared sizes it has a
    value: comparisons with numbers and shapes are True or False, as functions that check their arguments need them.
    """

    def __getitem__(self, key: Any) -> Any:
        return as_sizes(super().__getitem__(key))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(_number(self))

    def __repr__(self) -> str:
        return repr(_number(self))

    __str__ = __repr__
    __hash__ = VarNode.__hash__


for _name in "add radd sub rsub mul rmul floordiv rfloordiv mod rmod".split():
    setattr(Sizes, f"__{_name}__", _of_sizes(f"__{_name}__"))
for _name in "eq ne lt le gt ge".split():
    setattr(Sizes, f"__{_name}__", _compared(_name))
