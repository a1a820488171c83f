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


def fewer_and_nothing_new(t: World, x: Tensor) -> Tensor:
    y = x * 2
    return x if t.odd else y + 1


def other_count(t: World, x: Tensor) -> Tensor:
    return F.concat([x, x]) if t.odd else F.exp(x)


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
    fewer_ops: ("data unreadable", "after 2 of 3 recorded ops; next was add"),
    fewer_and_nothing_new: ("mismature end", "after 2 of 3 recorded ops; next was add"),
    other_count: ("input size mismatch", "recording has exp of 1 inputs here, the call made concat of 2"),
    more_ops: ("too many instructions", "ends before exp"),
    other_order: ("input id mismatch", "input 0 of sub"),
    inside_given_twice: ("expect external node, got internal", "input 1 of add"),
    outside_for_inside: ("expect internal node, got external", "input 1 of mul"),
    inside_for_outside: ("input size mismatch", "recording has add of 2 inputs here, the call made exp of 1"),
    outside_dtype: ("dtype mismatch: Float32 vs Int32", "input 0 of reshape"),
    read_early: ("value unreadable", "not read in the recorded call"),
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


@pytest.mark.parametrize("symbolic", [False, True])
def test_arguments_may_change_places(symbolic: bool) -> None:
    """Host mode: an operand from outside is whatever tensor stands there, once per call."""
    swap = False

    @trace(symbolic=symbolic)
    def f(x: Tensor, y: Tensor) -> Tensor:
        a, b = (y, x) if swap else (x, y)
        return F.exp(a) + b * a

    for i in range(6):
        swap = i % 2 == 1
        a, b = np.array([1.0, 2.0 + i], "float32"), np.array([0.5, 0.25], "float32")
        got = f(Tensor(a), Tensor(b)).numpy()
        first, second = (b, a) if swap else (a, b)
        np.testing.assert_allclose(got, np.exp(first) + second * first, rtol=1e-6)

    twice = False

    @trace(symbolic=symbolic)
    def g(x: Tensor, y: Tensor) -> Tensor:
        return x + (x if twice else y)

    x, y = Tensor([1.0]), Tensor([5.0])
    assert g(x, y).item() == 6.0
    twice = True
    assert g(x, y).item() == 2.0

    @trace(symbolic=symbolic)
    def h(x: Tensor, y: Tensor) -> Tensor:
        return x + (x if twice else y)

    assert h(x, y).item() == 2.0
    twice = False
    with pytest.raises(TraceError, match="input id mismatch"):  # one variable cannot be two tensors
        h(x, y)


@pytest.mark.parametrize("symbolic", [False, True])
def test_an_argument_that_is_assigned_may_change_places(symbolic: bool) -> None:
    swap = False

    @trace(symbolic=symbolic)
    def f(x: Tensor, y: Tensor) -> Tensor:
        a, b = (y, x) if swap else (x, y)
        a += b
        return a * b

    for i in range(6):
        swap = i % 2 == 1
        x, y = Tensor([2.0]), Tensor([3.0 + i])
        try:
            got = f(x, y).item()
        except TraceError:  # refused, or right
            assert swap and (x.item(), y.item()) == (2.0, 3.0 + i)
            continue
        a, b = (3.0 + i, 2.0) if swap else (2.0, 3.0 + i)
        assert got == (a + b) * b
        assert (y if swap else x).item() == a + b and (x if swap else y).item() == b


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
