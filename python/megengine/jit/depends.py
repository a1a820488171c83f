"""What a recorded call depends on besides its arguments, and whether that is still so.

A note is the state of an object, or of what a name stands for, as bytes (``python/bindings/trace_key.cpp``). Before a
recording is used again its notes are compared: those of modules, managers and optimizers only after the process-wide
count of mutations moved, those of names on every call.
"""

from __future__ import annotations

import io
import itertools
import operator
import pickle
import random
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..core import _core
from ..module import Module
from .conditional import Conditional
from .tree import Part, Plan, ResultPlan

# Places in a note.
TARGET, HELD = 0, 3


def _names_of(code: types.CodeType) -> set[str]:
    """The globals that a function and the functions inside it may name."""
    names = set(code.co_names)
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            names |= _names_of(c)
    return names


_CODE = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType)


class _Methods:
    """The methods of the user's classes that objects in sight belong to, by name."""

    def __init__(self) -> None:
        self._seen: set[int] = set()  # kept alive by whoever sees them
        self._classes: set[type] = set()
        self._methods: dict[str, list[Any]] = {}
        self.called: list[Any] = []  # of modules: called by calling the module

    def add(self, obj: Any) -> None:
        if id(obj) in self._seen:
            return
        parts = list(obj.modules()) if isinstance(obj, Module) else [obj]
        self._seen.update(map(id, parts))
        for cls in {type(part) for part in parts} - self._classes:
            self._classes.add(cls)
            for base in cls.__mro__:
                if base.__module__.split(".")[0] in ("megengine", "numpy", "builtins"):
                    continue
                for name, method in vars(base).items():
                    if isinstance(method, types.FunctionType):
                        self._methods.setdefault(name, []).append(method)
            if issubclass(cls, Module):
                self.called += self._methods.get("forward", [])

    def named(self, names: Iterable[str]) -> list[Any]:
        """Those that a function with these names in it may call."""
        return [method for name in names for method in self._methods.get(name, ())]


def function_names(fn: Any, objects: Iterable[Any]) -> Iterator[tuple[Any, str | None, str]]:
    """What a call of a function with these objects can see by name: cells of closures, globals and attributes of Python
    modules, also by way of methods and of functions of the same file. As (target of a note, name in it, what to call
    it)."""
    seen: set[int] = set()
    methods = _Methods()
    for obj in (fn, getattr(fn, "__self__", None), *objects):
        methods.add(obj)
    todo = [fn, *methods.called]
    while todo:
        f = todo.pop()
        if isinstance(f, types.MethodType):
            f = f.__func__
        if not isinstance(f, types.FunctionType) or id(f) in seen:
            continue
        seen.add(id(f))
        names = sorted(_names_of(f.__code__))
        yield f, None, f"the code or a default of {f.__name__}"
        found: list[Any] = [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
        for label, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
            yield cell, None, label
            try:
                found.append(cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
        todo += found
        for name in names:
            if name in f.__globals__:
                yield f.__globals__, name, name
                value = f.__globals__[name]
                found.append(value)
                if isinstance(value, types.FunctionType) and value.__globals__ is f.__globals__:
                    todo.append(value)
        for value in found:
            methods.add(value)
        todo += methods.named(names) + methods.called
        for module in found:
            if isinstance(module, types.ModuleType):
                attributes = vars(module)
                for name in names:
                    if name in attributes and not isinstance(attributes[name], _CODE):
                        yield attributes, name, f"{module.__name__}.{name}"


def _value_of(target: Any, name: str | None) -> Any:
    if name is not None:
        return target.get(name)
    if not isinstance(target, types.CellType):
        return target
    try:
        return target.cell_contents
    except ValueError:
        return None


class Name:
    """What a function sees under a name, as it was before the call."""

    def __init__(self, target: Any, name: str | None, label: str) -> None:
        self.label = label
        self.value = _value_of(target, name)
        self.shallow = _core.note(target, name, True, False)
        # What a function sees is noted by itself.
        known = isinstance(self.value, types.FunctionType) and self.value is not target
        self.deep = self.shallow if known else _core.note(target, name, True, True)
        self._items = list(self.value) if isinstance(self.value, list) else None

    def only_grew(self) -> bool:
        """Whether it is a list whose elements are still there."""
        return (
            self._items is not None
            and all(a is b for a, b in zip(self._items, self.value))
            and (len(self.value) >= len(self._items))
        )


def positions(objects: Iterable[Any]) -> list[Any]:
    """How far the iterators and random generators among the objects are; one that cannot tell is a position of its own.

    Iterators and generators written in Python tell by their attributes, which are noted anyway.
    """
    return [_position(o) for o in objects if isinstance(o, _MOVING) and not isinstance(o, io.IOBase)]


_MOVING = (Iterator, np.random.RandomState, np.random.Generator, np.random.BitGenerator, random.Random)


def _position(o: Any) -> Any:
    if isinstance(o, np.random.RandomState):
        return pickle.dumps(o.get_state(legacy=False))
    if isinstance(o, np.random.Generator):
        o = o.bit_generator
    if isinstance(o, np.random.BitGenerator):
        return pickle.dumps(o.state)
    if isinstance(o, random.Random):
        return o.getstate()
    if isinstance(o, itertools.count):
        return repr(o)
    if isinstance(o, (type(iter([])), type(iter(())), type(iter("")))):
        return operator.length_hint(o)
    return None if hasattr(o, "__dict__") else object()


def random_states() -> Any:
    """Where the global generators of NumPy and Python are."""
    numpy = np.random.get_state(legacy=False)
    return numpy["state"]["key"][:4].tolist(), numpy["state"]["pos"], numpy["has_gauss"], random.getstate()[1][-5:]


Entry = _core.TraceEntry


def grad_plan(plan: ResultPlan, grad: Any, recording: _core.Recording) -> Plan:
    """How to make the gradient that a call leaves."""
    if isinstance(grad, Conditional):
        return plan.called(lambda value, absent: Conditional(value, absent).resolve(), (grad.grad, grad.absent))
    if grad is None or not recording.is_inside(grad):
        return Part.SAME, grad
    return Part.NEW, plan.add(grad)
