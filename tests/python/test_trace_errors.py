"""Calls that are not the recorded one: the reason on the first line, what was found and the user's line after it, state
as before the call, and a trace that goes on working."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.core._core import TraceError
from megengine.jit import exclude_from_trace, trace


class World:
    """What the bodies below go by: `odd` is set for the call that differs."""

    def __init__(self) -> None:
        self.odd = False
        self.w = mge.Parameter([2.0, 3.0])
        self.kept: Any = None


def other_op(t: World, x: Tensor) -> Tensor:
    return x - 1 if t.odd else x + 1


def other_attributes(t: World, x: Tensor) -> Tensor:
    return F.sum(x, axis=0, keepdims=t.odd) * 1.0


def fewer_ops(t: World, x: Tensor) -> Tensor:
    return x * 2 if t.odd else x * 2 + 1


def more_ops(t: World, x: Tensor) -> Tensor:
    y = x * 2
    return F.exp(y) if t.odd else y


def other_order(t: World, x: Tensor) -> Tensor:
    a, b = F.exp(x), F.exp(x)
    return b - a if t.odd else a - b


def inside_for_outside(t: World, x: Tensor) -> Tensor:
    y = F.exp(x)
    return y + (F.exp(x) if t.odd else t.w)


def inside_given_twice(t: World, x: Tensor) -> Tensor:
    y = F.exp(x)
    return y + (y if t.odd else t.w)


def outside_for_inside(t: World, x: Tensor) -> Tensor:
    y = F.exp(x)
    return x * (t.w if t.odd else y)


def outside_dtype(t: World, x: Tensor) -> Tensor:
    return Tensor([1, 2], dtype="int32" if t.odd else "float32").reshape(2, 1)


def read_early(t: World, x: Tensor) -> Tensor:
    y = F.exp(x)
    if t.odd:
        y.numpy()
    return y + 1


def excluded_elsewhere(t: World, x: Tensor) -> Tensor:
    if t.odd:
        with exclude_from_trace():
            pass
    y = F.exp(x)
    if not t.odd:
        with exclude_from_trace():
            pass
    return y * 1


CASES: dict[Callable[..., Any], tuple[str, str]] = {
    other_op: ("operator mismatch", "recording has add here, the call made sub"),
    other_attributes: ("operator mismatch", "recording has reduce.*the call made reduce"),
    fewer_ops: ("mismature end", "after 2 of 3 recorded ops; next was add"),
    more_ops: ("too many instructions", "ends before exp"),
    other_order: ("input id mismatch", "input 0 of sub"),
    inside_given_twice: ("expect external node, got internal", "input 1 of add"),
    outside_for_inside: ("expect internal node, got external", "input 1 of mul"),
    inside_for_outside: ("operator mismatch", "recording has add here, the call made exp"),
    outside_dtype: ("dtype mismatch: float32 vs int32", "input 0 of reshape"),
    read_early: ("data unreadable", "not read in the recorded call"),
    excluded_elsewhere: ("operator mismatch", "exclude_from_trace"),
}


@pytest.mark.parametrize("symbolic_shape", [True, False])
@pytest.mark.parametrize("body", CASES, ids=lambda f: f.__name__)
def test_a_call_that_differs_says_how_and_where(body: Callable[..., Any], symbolic_shape: bool) -> None:
    t = World()
    counts = Tensor([0.0])

    def f(x: Tensor) -> Tensor:
        counts._reset(counts + 1)
        return body(t, x)

    traced = trace(f, symbolic_shape=symbolic_shape)
    x = Tensor([1.0, 2.0])
    want = body(t, x).numpy()
    reason, found = CASES[body]
    for _ in range(2):
        t.odd = False
        for _ in range(2):
            np.testing.assert_array_equal(traced(x).numpy(), want)
        t.odd = True
        before = counts.item()
        with pytest.raises(TraceError) as e:
            traced(x)
        first, *more = str(e.value).splitlines()
        assert first == f"trace error because {reason}"
        text = "\n".join(more)
        assert re.search(found, text), text
        assert "test_trace_errors.py:" in text, text
        assert counts.item() == before  # a call that failed did nothing


@pytest.mark.parametrize("options", [{}, {"without_host": True}, {"symbolic_shape": False}])
def test_other_arguments_are_recorded_anew(options: Any) -> None:
    f = trace(lambda x, *rest, k=0: x.sum() * 2 + len(rest) + k, **options)
    calls: list[tuple[Any, Any]] = [
        ((Tensor([1.0, 2.0]),), {}),
        ((Tensor(np.array([1, 2], "int32")),), {}),
        ((Tensor([[1.0], [2.0]]),), {}),
        ((Tensor([1.0, 2.0, 3.0]),), {}),
        ((Tensor([1.0, 2.0]), None), {}),
        ((Tensor([1.0, 2.0]), (None, 1)), {}),
        ((Tensor([1.0, 2.0]),), {"k": 1}),
        ((Tensor([1.0, 2.0]),), {"k": 1.5}),
    ]
    for _ in range(3):
        for args, kwargs in calls:
            assert f(*args, **kwargs).numpy() == f.__wrapped__(*args, **kwargs).numpy()


def test_interrupts_and_errors_in_the_middle_leave_nothing_open() -> None:
    w = mge.Parameter([1.0])
    stop: list[BaseException] = []

    @trace
    def step(x: Tensor) -> Tensor:
        w._reset(w + x)
        if stop:
            raise stop.pop()
        return w * 2

    for error in (KeyboardInterrupt(), ValueError("mine"), SystemExit(3)):
        for _ in range(2):
            step(Tensor([1.0]))
        before = w.item()
        stop.append(error)
        with pytest.raises(type(error)) as e:
            step(Tensor([1.0]))
        assert e.value is error and w.item() == before
        assert not mge.jit.is_tracing() and (Tensor([1.0]) + 1).item() == 2.0
