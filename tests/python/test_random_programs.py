"""Random programs give the same bits, or the same error at the same line, however they are executed.

A program is a list of instructions over a growing list of tensors: arithmetic, slices, reductions, products, updates in
place, indices that may be out of range, and a backward pass at the end. It runs inline, queued, with and without reuse
of memory, with one and two threads, and on the fake device; all must agree with the plain run.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import megengine.functional as F
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace

# ---- instructions: (tensors, small numbers drawn with the program) -> a tensor. One line each: the line is compared.

Step = Callable[[Tensor, Tensor, int, int], Tensor]


def axis_of(x: Tensor, i: int) -> int:
    return i % x.ndim if x.ndim else 0


def updated(x: Tensor, y: Tensor, i: int) -> Tensor:
    z = x + 0
    z[i % x.shape[0] if x.ndim and x.shape[0] else ...] = y
    return z


def bumped(x: Tensor, y: Tensor) -> Tensor:
    z = x + 0
    z += y
    z *= 0.5
    return z


STEPS: dict[str, Step] = {
    "add": lambda x, y, i, j: x + y,
    "sub": lambda x, y, i, j: x - y,
    "mul": lambda x, y, i, j: x * y,
    "div": lambda x, y, i, j: x / (y + 3),
    "scale": lambda x, y, i, j: x * 0.75 - i,
    "tanh": lambda x, y, i, j: F.tanh(x),
    "relu": lambda x, y, i, j: F.relu(x - 0.5),
    "max": lambda x, y, i, j: F.maximum(x, y),
    "less": lambda x, y, i, j: (x < y).astype("float32"),
    "where": lambda x, y, i, j: F.where(x > 0.1 * i, x, y),
    "int": lambda x, y, i, j: x.astype("int32"),
    "half": lambda x, y, i, j: x.astype("float16"),
    "float": lambda x, y, i, j: x.astype("float32"),
    "sum": lambda x, y, i, j: x.sum(axis=axis_of(x, i)) if x.ndim else x + x,
    "mean": lambda x, y, i, j: x.mean(axis=axis_of(x, i), keepdims=True) if x.size else x + x,
    "softmax": lambda x, y, i, j: F.softmax(x, axis=axis_of(x, i)),
    "slice": lambda x, y, i, j: x[i % 3 :: 1 + j % 2],
    "last": lambda x, y, i, j: x[..., ::-1],
    "pick": lambda x, y, i, j: x[i % 4],
    "flip": lambda x, y, i, j: F.transpose(x, tuple(range(x.ndim))[::-1]),
    "flat": lambda x, y, i, j: x.reshape(-1),
    "fold": lambda x, y, i, j: x.reshape(2, -1),
    "wide": lambda x, y, i, j: F.broadcast_to(x, (2, *x.shape)) if x.ndim < 4 else x,
    "concat": lambda x, y, i, j: F.concat([x, y, x], axis=axis_of(x, i)),
    "matmul": lambda x, y, i, j: F.matmul(x, y, transpose_b=bool(j % 2)),
    "square": lambda x, y, i, j: F.matmul(x, x, transpose_b=True) if x.ndim >= 2 else x * x,
    "take": lambda x, y, i, j: F.gather(x.reshape(-1), 0, Tensor(np.array([i, j], np.int32), device=x.device)),
    "rows": lambda x, y, i, j: x[Tensor(np.array([0, i], np.int32), device=x.device)],
    "set": lambda x, y, i, j: updated(x, y, i),
    "bump": lambda x, y, i, j: bumped(x, y),
    "detach": lambda x, y, i, j: x.detach() * 1.5,
}
DTYPES = ("float32", "float32", "float32", "int32", "float16", "uint8")


@dataclass(frozen=True)
class Program:
    seed: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    steps: tuple[tuple[str, int, int, int, int], ...]
    grad: bool


small = st.integers(0, 7)
steps = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 40), st.integers(0, 40), small, small)
SHAPES = [(), (1,), (3,), (4, 3), (3, 4), (2, 3, 4), (1, 4), (0, 3), (2, 2), (37,), (5, 130)]
programs = st.builds(
    Program,
    st.integers(0, 1000),
    st.lists(st.sampled_from(SHAPES), min_size=2, max_size=4).map(tuple),
    st.lists(st.sampled_from(DTYPES), min_size=4, max_size=4).map(tuple),
    st.lists(steps, min_size=5, max_size=30).map(tuple),
    st.booleans(),
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """An error as all ways of running must agree on it: what was said first, and where."""

    text: str
    line: int

    @staticmethod
    def of(e: Exception) -> Failure:
        text = str(e)
        late = re.search(rf"at {re.escape(__file__)}:(\d+) in", text)
        if late is not None:
            line = int(late[1])
        else:
            line = [f.lineno or 0 for f in traceback.extract_tb(e.__traceback__) if f.filename == __file__][-1]
        return Failure(text.splitlines()[0], line)


Outcome = bytes | Failure


def run(p: Program, device: str | None) -> list[Outcome]:
    rng = np.random.RandomState(p.seed)
    leaves = []
    for shape, dtype in zip(p.shapes, p.dtypes):
        values = rng.uniform(-2, 2, shape) if dtype.startswith("float") else rng.randint(0, 5, shape)
        leaves.append(Tensor(np.asarray(values, dtype), device=device))
    gm = GradManager().attach([x for x in leaves if x.dtype == np.float32]) if p.grad else None
    if gm is not None:
        gm.record()
    try:
        made: list[Tensor | Failure] = list(leaves)
        sources: list[tuple[int, ...]] = [()] * len(made)
        for name, a, b, i, j in p.steps:
            ia, ib = a % len(made), b % len(made)
            x, y = made[ia], made[ib]
            sources.append((ia, ib))
            if isinstance(x, Failure) or isinstance(y, Failure):
                made.append(x if isinstance(x, Failure) else y)
                continue
            try:
                made.append(STEPS[name](x, y, i, j))
            except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as e:
                assert not isinstance(e, _core.InternalError), e
                made.append(Failure.of(e))
        outcomes = [read(t) for t in made]
        # Whoever notices an error late has tried ops on it meanwhile, and may have been refused for their own sake.
        for k, from_ in enumerate(sources):
            for s in from_:
                if isinstance(outcomes[s], Failure):
                    outcomes[k] = outcomes[s]
                    break
        if gm is not None and not any(isinstance(o, Failure) for o in outcomes):
            total: Tensor | None = None
            for t in made[len(leaves) :]:
                assert isinstance(t, Tensor)
                if t.dtype == np.float32 and t.size:
                    part = (F.tanh(t) * 0.1).mean()
                    total = part if total is None else total + part
            if total is not None:
                gm.backward(total)
            outcomes += [b"" if x.grad is None else read(x.grad) for x in leaves]
        return outcomes
    finally:
        if gm is not None:
            gm.release()


def read(t: Tensor | Failure) -> Outcome:
    if isinstance(t, Failure):
        return t
    try:
        return bytes(str(t.dtype), "ascii") + str(t.shape).encode() + t.numpy().tobytes()
    except RuntimeError as e:
        return Failure.of(e)


@contextmanager
def way_of_running(executor: int, level: int, donation: int, threads: int, delay: int | None) -> Iterator[None]:
    before = _core.get_num_threads()
    _core.set_option("executor", executor)
    _core.set_option("async_level", level)
    _core.set_option("donation", donation)
    _core.set_num_threads(threads)
    if delay is not None:
        _core.test_device(delay_us=delay)
    try:
        yield
    finally:
        try:
            _core.sync()
        except RuntimeError:
            pass  # an error whose dependants were read
        _core.set_option("executor", 0)
        _core.set_option("async_level", 2)
        _core.set_option("donation", 1)
        _core.set_num_threads(before)


WAYS: dict[str, tuple[Any, ...]] = {
    "inline, 2 threads, no reuse": (0, 2, 0, 2, None),
    "queued": (1, 2, 1, 1, None),
    "queued, 2 threads, no reuse": (1, 2, 0, 2, None),
    "queued, waiting after each op": (1, 0, 1, 2, None),
    "fake device": (0, 2, 1, 1, 0),
    "fake device, slow": (1, 2, 1, 2, 30),
}


@pytest.mark.asan_subset
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
)
@given(programs)
def test_all_ways_of_running_agree(p: Program) -> None:
    with way_of_running(0, 2, 1, 1, None):
        want = run(p, None)
    for name, way in WAYS.items():
        with way_of_running(*way):
            got = run(p, None if way[-1] is None else "fake0")
        assert len(got) == len(want), name
        for k, (a, b) in enumerate(zip(want, got)):
            if isinstance(a, Failure) and isinstance(b, Failure):
                assert (a.line, a.text.replace("cpu0", "")) == (b.line, b.text.replace("fake0", "")), (name, k)
            else:
                assert a == b, (name, k)


def traceable(p: Program) -> Callable[..., list[Tensor]]:
    """The program as a function of its leaves, without the steps that fail."""
    failed = [isinstance(o, Failure) for o in run(p, None)[len(p.shapes) :]]

    def body(*leaves: Tensor) -> list[Tensor]:
        gm = GradManager()
        floats = [x for x in leaves if x.dtype == np.float32]
        if p.grad and floats:
            gm.attach(floats)
        with gm:
            made = list(leaves)
            for (name, a, b, i, j), bad in zip(p.steps, failed):
                made.append(leaves[0] if bad else STEPS[name](made[a % len(made)], made[b % len(made)], i, j))
            results = [t for t, bad in zip(made[len(leaves) :], failed) if not bad]
            total: Tensor | None = None
            for t in results:
                if t.dtype == np.float32 and t.size:
                    part = (F.tanh(t) * 0.1).mean()
                    total = part if total is None else total + part
            if p.grad and floats and total is not None:
                gm.backward(total)
        for x in floats:
            if x.grad is not None:
                results.append(x.grad)
                x.grad = None
        return results

    return body


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None)
@given(programs, st.sampled_from([{}, {"symbolic": True}, {"without_host": True}]))
def test_traced_programs_give_the_same_bits(p: Program, options: dict[str, bool]) -> None:
    body = traceable(p)
    traced = trace(**options)(body)
    for call in range(3):  # recorded, compiled, compiled
        rng = np.random.RandomState(p.seed + call)
        leaves = []
        for shape, dtype in zip(p.shapes, p.dtypes):
            values = rng.uniform(-2, 2, shape) if dtype.startswith("float") else rng.randint(0, 5, shape)
            leaves.append(Tensor(np.asarray(values, dtype)))
        want = [read(t) for t in body(*leaves)]
        got = [read(t) for t in traced(*leaves)]
        assert got == want, call


def test_the_programs_reach_what_they_are_for() -> None:
    """Most programs compute something, some fail, and both kinds have gradients."""
    seen = {"ok": 0, "failed": 0, "grads": 0, "late": 0}

    @settings(max_examples=120, deadline=None, derandomize=True, database=None)
    @given(programs)
    def count(p: Program) -> None:
        outcomes = run(p, None)
        failed = any(isinstance(o, Failure) for o in outcomes)
        seen["failed" if failed else "ok"] += 1
        seen["grads"] += p.grad and not failed
        seen["late"] += any(isinstance(o, Failure) and "index" in o.text for o in outcomes)

    count()
    assert seen["ok"] > 10 and seen["failed"] > 10 and seen["grads"] > 3 and seen["late"] > 3, seen
