"""Structures of tensors: taking them apart, and building a traced function's result anew on each call."""

from __future__ import annotations

import enum
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from .._size import Size
from ..core import _core
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


#: Makes a result from the tensors a replay gave and the tensors it was called with.
Builder = Callable[[Sequence[Tensor], Sequence[Tensor]], Any]

_VALUES = (int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, enum.Enum, np.generic, np.dtype)
_SAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, CompNode)


class ResultPlan:
    """How to build what a function returned, given its tensors.

    Args:
        args: the tensors the function was called with; one that is returned is returned again, whichever it is then.
        is_inside: whether a tensor was made during the call; others are returned as they are.
        owners: the tensors whose gradient a tensor was when the call began; it is their gradient that is returned.
    """

    def __init__(
        self,
        result: Any,
        args: Sequence[Tensor],
        is_inside: Callable[[Tensor], bool],
        owners: Mapping[int, Tensor] = MappingProxyType({}),
    ) -> None:
        self.tensors: list[Tensor] = []
        self._args = {id(t): i for i, t in reversed(list(enumerate(args)))}
        self._is_inside = is_inside
        self._owners = owners
        self._numbers: dict[int, int] = {}
        self._shared: dict[int, int] = {}  # containers that occur before: id -> number
        self._made: list[Any] = []
        self._build = self._plan(result, "result")

    def close(self) -> list[Tensor]:
        """The tensors that a replay has to give, in order; the plan keeps none of them."""
        tensors, self.tensors = self.tensors, []
        self._args, self._numbers, self._shared, self._owners = {}, {}, {}, {}
        return tensors

    def build(self, new: Sequence[Tensor], args: Sequence[Tensor]) -> Any:
        """The result of a replay that gave ``new``."""
        result = self._build(new, args)
        self._made = [None] * len(self._made)
        return result

    def add(self, tensor: Tensor) -> int:
        """The number of a tensor that a replay has to give."""
        known = self._numbers.get(id(tensor))
        if known is None:
            known = self._numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return known

    def _plan(self, obj: Any, path: str) -> Builder:
        if isinstance(obj, Tensor):
            if id(obj) in self._args:
                position = self._args[id(obj)]
                return lambda new, args: args[position]
            owner = self._owners.get(id(obj))
            if owner is not None:
                return lambda new, args: owner.grad
            if not self._is_inside(obj):
                return lambda new, args: obj
            number = self.add(obj)
            if type(obj) is Size:
                return lambda new, args: _core.as_size(new[number])
            return lambda new, args: new[number]
        if isinstance(obj, _VALUES) or isinstance(obj, _SAME) or hasattr(type(obj), "_trace_state"):
            return lambda new, args: obj
        if isinstance(obj, np.ndarray) and not obj.dtype.hasobject:
            kept = obj.copy()
            return lambda new, args: kept.copy()
        if id(obj) in self._shared:  # the same object twice
            slot = self._shared[id(obj)]
            return lambda new, args: self._made[slot]
        slot = self._shared[id(obj)] = len(self._made)
        self._made.append(None)
        inner = self._container(obj, path)

        def build(new: Sequence[Tensor], args: Sequence[Tensor]) -> Any:
            made = self._made[slot] = inner(new, args)
            return made

        return build

    def _container(self, obj: Any, path: str) -> Builder:
        kind = type(obj)
        if isinstance(obj, tuple) and (kind is tuple or hasattr(obj, "_fields")):
            parts = [self._plan(o, f"{path}[{i}]") for i, o in enumerate(obj)]
            make = tuple if kind is tuple else kind._make
            return lambda new, args: make([p(new, args) for p in parts])
        if kind is list:
            parts = [self._plan(o, f"{path}[{i}]") for i, o in enumerate(obj)]
            return lambda new, args: [p(new, args) for p in parts]
        if kind in (set, frozenset) and not any(isinstance(o, Tensor) for o in obj):
            elements = frozenset(obj)
            return lambda new, args: kind(elements)
        if kind in (dict, OrderedDict, defaultdict):
            items = [(k, self._plan(v, f"{path}[{k!r}]")) for k, v in obj.items()]

            def build_dict(new: Sequence[Tensor], args: Sequence[Tensor]) -> Any:
                made: Any = defaultdict(obj.default_factory) if kind is defaultdict else kind()
                for k, p in items:
                    made[k] = p(new, args)
                return made

            return build_dict
        if set(getattr(kind, "__dataclass_fields__", ())) == set(getattr(obj, "__dict__", (None,))):
            fields = [(k, self._plan(v, f"{path}.{k}")) for k, v in vars(obj).items()]

            def build_dataclass(new: Sequence[Tensor], args: Sequence[Tensor]) -> Any:
                made = object.__new__(kind)
                for k, p in fields:
                    object.__setattr__(made, k, p(new, args))
                return made

            return build_dataclass
        raise CannotRebuild(f"{path} is a {kind.__qualname__}, which cannot be made anew on each call")
