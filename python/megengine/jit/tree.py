"""Structures of tensors: taking them apart, and building a traced function's result anew on each call."""

from __future__ import annotations

import enum
import functools
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from .._size import Size
from ..core._core import CompNode
from ..tensor import Tensor


class Leaf:
    """Stands for the i-th tensor in a flattened structure."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def flatten(obj: Any, tensors: list[Tensor]) -> Any:
    """Replaces tensors in nested tuples, lists and dicts by leaves; other objects stay."""
    if isinstance(obj, Tensor):
        tensors.append(obj)
        return Leaf(len(tensors) - 1)
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return type(obj)(*(flatten(o, tensors) for o in obj))
    if isinstance(obj, (tuple, list)):
        return type(obj)(flatten(o, tensors) for o in obj)
    if isinstance(obj, Mapping):
        return {k: flatten(v, tensors) for k, v in obj.items()}
    return obj


def unflatten(tree: Any, tensors: Sequence[Tensor]) -> Any:
    """The structure again, with these tensors."""
    if isinstance(tree, Leaf):
        return tensors[tree.index]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(unflatten(o, tensors) for o in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(unflatten(o, tensors) for o in tree)
    if isinstance(tree, dict):
        return {k: unflatten(v, tensors) for k, v in tree.items()}
    return tree


class CannotRebuild(Exception):
    """A result holds something that is not known to be the same in every call."""


class Part(enum.IntEnum):
    """The kinds of parts of a plan, as ``python/bindings/trace_result.h`` lists them."""

    NEW, ARGUMENT, SAME, SIZE, GRAD, COPY, AGAIN, TUPLE, LIST, DICT, FILLED, MADE, FIELDS, CALLED, NAMED = range(15)


#: A part of a result: its kind and what that takes.
Plan = tuple[Any, ...]

_VALUES = (int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, enum.Enum, np.generic, np.dtype)
_SAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, CompNode)


class ResultPlan:
    """How to build what a function returned: ``result``, of the ``tensors`` that a replay has to give.

    Args:
        args: the tensors the function was called with; one that is returned is returned again, whichever it is then.
        is_inside: whether a tensor was made during the call; others are returned as they are.
        owners: the tensors whose gradient a tensor was when the call began; it is their gradient that is returned.
        tensors: those that a replay gives in any case.
    """

    def __init__(
        self,
        result: Any,
        args: Sequence[Tensor],
        is_inside: Callable[[Tensor], bool],
        owners: Mapping[int, Tensor] = MappingProxyType({}),
        tensors: Sequence[Tensor] = (),
    ) -> None:
        self.tensors: list[Tensor] = list(tensors)
        self._args = {id(t): i for i, t in reversed(list(enumerate(args)))}
        self._is_inside = is_inside
        self._owners = owners
        self._numbers = {id(t): i for i, t in reversed(list(enumerate(tensors)))}
        self._slots: dict[int, int] = {}  # of containers: id -> number
        self._n_slots = 0
        self._open: set[int] = set()
        self.result = self._plan(result, "result")

    def add(self, tensor: Tensor) -> int:
        """The number of a tensor that a replay has to give."""
        known = self._numbers.get(id(tensor))
        if known is None:
            known = self._numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return known

    def called(self, fn: Callable[..., Any], tensors: Sequence[Tensor]) -> Plan:
        """What ``fn`` makes of tensors of the call."""
        return Part.CALLED, self._slot(), tuple((Part.NEW, self.add(t)) for t in tensors), fn

    def _slot(self) -> int:
        self._n_slots += 1
        return self._n_slots - 1

    def _plan(self, obj: Any, path: str) -> Plan:
        if isinstance(obj, Tensor):
            if id(obj) in self._args:
                return Part.ARGUMENT, self._args[id(obj)]
            owner = self._owners.get(id(obj))
            if owner is not None:
                return Part.GRAD, owner
            if not self._is_inside(obj):
                return Part.SAME, obj
            return Part.SIZE if type(obj) is Size else Part.NEW, self.add(obj)
        if isinstance(obj, _VALUES) or isinstance(obj, _SAME) or hasattr(type(obj), "_trace_state"):
            return Part.SAME, obj
        if isinstance(obj, np.ndarray) and not obj.dtype.hasobject:
            return Part.COPY, obj.copy()
        if id(obj) in self._open:
            raise CannotRebuild(f"{path} is a {type(obj).__qualname__} that holds itself")
        if id(obj) in self._slots:  # the same object twice
            return Part.AGAIN, self._slots[id(obj)]
        self._open.add(id(obj))
        kind, parts, *rest = self._container(obj, path)
        self._open.remove(id(obj))
        slot = self._slots[id(obj)] = self._slot()
        return kind, slot, parts, *rest

    def _container(self, obj: Any, path: str) -> Plan:
        kind = type(obj)
        if isinstance(obj, tuple) and (kind is tuple or hasattr(obj, "_fields")):
            parts = tuple(self._plan(o, f"{path}[{i}]") for i, o in enumerate(obj))
            if kind is tuple:
                return Part.TUPLE, parts
            maker = next(c for c in kind.__mro__ if "_make" in vars(c) or "_fields" in vars(c))
            return (Part.NAMED, parts, kind) if "_field_defaults" in vars(maker) else (Part.MADE, parts, kind._make)
        if kind is list:
            return Part.LIST, tuple(self._plan(o, f"{path}[{i}]") for i, o in enumerate(obj))
        if kind in (set, frozenset) and not any(isinstance(o, Tensor) for o in obj):
            return Part.MADE, tuple((Part.SAME, o) for o in obj), kind
        if kind in (dict, OrderedDict, defaultdict):
            keys, parts = tuple(obj), tuple(self._plan(v, f"{path}[{k!r}]") for k, v in obj.items())
            if kind is dict:
                return Part.DICT, parts, keys
            factory: Any = functools.partial(defaultdict, obj.default_factory) if kind is defaultdict else kind
            return Part.FILLED, parts, keys, factory
        if set(getattr(kind, "__dataclass_fields__", ())) == set(getattr(obj, "__dict__", (None,))):
            parts = tuple(self._plan(v, f"{path}.{k}") for k, v in vars(obj).items())
            return Part.FIELDS, parts, tuple(vars(obj)), kind
        raise CannotRebuild(f"{path} is a {kind.__qualname__}, which cannot be made anew on each call")
