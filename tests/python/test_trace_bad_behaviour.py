"""Random sequences of calls that a recording was not made for: other shapes, ranks, dtypes, structures, Python values,
globals and control flow that change, exceptions in the middle, calls inside calls, threads.

Every call gives the bits of the eager one, or raises what it raised, or is refused with a line of the user's; and the
next call is right again, whatever came before.
"""

from __future__ import annotations

import ctypes
import dataclasses
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.jit import trace

ROUNDS = 10  # more by tools/fuzz/traced_calls.py
FACTOR = 2.0  # a global that a call goes by
MODES: dict[str, dict[str, Any]] = {
    "host": {"symbolic": False},
    "symbolic": {"symbolic": True},
    "without_host": {"symbolic": True, "without_host": True},
    "fixed sizes": {"symbolic": True, "without_host": True, "symbolic_shape": False},
}


class Boom(Exception):
    pass


class World:
    def __init__(self) -> None:
        mge.random.seed(7)
        self.net = M.BatchNorm1d(3)
        self.total = Tensor(np.zeros(3, np.float32))
        self.config = {"power": 2}
        self.inner: Callable[..., Any] | None = None


@dataclasses.dataclass(frozen=True)
class Call:
    shape: tuple[int, ...]
    dtype: str
    structure: str
    branch: int  # which way Python goes
    boom: int  # after which statement it raises; 0: never
    change: str  # before the call
    inside: bool  # it calls another traced function


def body(w: World, given: Any, branch: int, boom: int, inside: bool) -> Any:
    xs = given if isinstance(given, list) else list(given.values()) if isinstance(given, dict) else [given]
    x = xs[0].astype("float32")
    for other in xs[1:]:
        x = x + other.astype("float32") * 0.5
    if boom == 1:
        raise Boom("one")
    x = x * FACTOR + w.config["power"]
    if branch == 1:
        x = F.exp(-x * x)
    elif branch == 2:
        x = F.relu(x) - F.sum(x)
    if x.ndim == 2:
        x = w.net(x)
    if boom == 2:
        raise Boom("two")
    if inside and w.inner is not None:
        x = w.inner(x) + x
    rows = x.reshape(-1, 3) if branch != 3 else F.concat([x.reshape(-1, 3), x.reshape(-1, 3)])
    if boom == 3:
        raise Boom("three")
    w.total[...] = w.total + F.sum(rows, axis=0)
    return {"rows": rows, "n": len(xs)} if branch == 2 else [rows, x] if branch else rows


def change(w: World, what: str) -> None:
    global FACTOR
    if what == "global":
        FACTOR = 3.0 if FACTOR == 2.0 else 2.0
    elif what == "config":
        w.config["power"] += 1
    elif what == "mode":
        w.net.train(not w.net.training)
    elif what == "state":
        w.total[...] = w.total * 0.5


def arguments(c: Call, seed: int) -> Any:
    rng = np.random.RandomState(seed)

    def one() -> Tensor:
        return Tensor(rng.randint(-3, 4, c.shape).astype(c.dtype))

    if c.structure == "list":
        return [one(), one()]
    return {"a": one(), "b": one(), "c": one()} if c.structure == "dict" else one()


def frozen(o: Any) -> Any:
    if isinstance(o, Tensor):
        return (str(o.dtype), tuple(o.numpy().shape), o.numpy().tobytes())
    if isinstance(o, dict):
        return {k: frozen(v) for k, v in o.items()}
    return [frozen(v) for v in o] if isinstance(o, list) else o


def state(w: World) -> Any:
    return frozen([w.total, w.net.running_mean, w.net.running_var])


def calls(rng: random.Random) -> list[Call]:
    few = [
        Call(
            rng.choice([(2, 3), (4, 3), (3,), (2, 2, 3), (6,)]),
            rng.choice(["float32", "float16", "int32", "float32"]),
            rng.choice(["tensor", "tensor", "list", "dict"]),
            rng.randrange(4),
            0,
            "",
            rng.random() < 0.15,
        )
        for _ in range(3)
    ]
    out = []
    for _ in range(10):
        c = rng.choice(few)  # what comes again is replayed
        boom = rng.randrange(4) if rng.random() < 0.2 else 0
        out.append(
            dataclasses.replace(c, boom=boom, change=rng.choice(["", "", "", "global", "config", "mode", "state"]))
        )
    return out


def check(seed: int, options: dict[str, Any]) -> None:
    global FACTOR
    rng = random.Random(seed)
    w, e = World(), World()
    inner_body = lambda x: F.tanh(x) * 2  # noqa: E731
    w.inner, e.inner = trace(inner_body, **options), inner_body
    f = trace(lambda given, branch, boom, inside: body(w, given, branch, boom, inside), **options)
    for i, c in enumerate(calls(rng)):
        for world in (w, e):
            was = FACTOR
            change(world, c.change)
            if world is w:
                FACTOR, changed = was, FACTOR
        FACTOR = changed
        before = state(w)
        args = (c.branch, c.boom, c.inside)
        try:
            got: Any = frozen(f(arguments(c, i), *args))
        except Boom as x:
            got = str(x)
        except Exception as x:
            text = str(x)
            assert c.inside and "traced function" in text, f"seed {seed}, call {i} {c}: {type(x).__name__}: {text}"
            assert state(w)[0] == before[0]
            e.total[...] = w.total
            e.net.running_mean[...], e.net.running_var[...] = w.net.running_mean, w.net.running_var
            continue
        try:
            want: Any = frozen(body(e, arguments(c, i), *args))
        except Boom as x:
            want = str(x)
        assert got == want, f"seed {seed}, call {i}: {c}"
        if not isinstance(want, str):
            assert state(w) == state(e), f"seed {seed}, call {i}: {c}"
            continue
        # What a failed call had assigned is taken back where it had not run yet; eager code keeps it.
        assert state(w)[0] == state(e)[0], f"seed {seed}, call {i}: {c}"
        e.net.running_mean[...], e.net.running_var[...] = w.net.running_mean, w.net.running_var
    FACTOR = 2.0


@pytest.mark.parametrize("mode", MODES)
def test_random_bad_behaviour(mode: str) -> None:
    for seed in range(ROUNDS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # Python runs on each call: allowed here
            check(seed, MODES[mode])


@pytest.mark.parametrize("mode", ["host", "symbolic"])
def test_control_flow_that_nothing_tells_of(mode: str) -> None:
    """A replay cannot know; host mode finds it out, names the line and goes on."""
    way = ctypes.c_long(0)

    @trace(**MODES[mode])
    def f(x: Tensor) -> Tensor:
        y = F.exp(x)
        return y + 1 if way.value == 0 else F.relu(y) * 2

    x = Tensor([1.0, 2.0])
    rng = random.Random(3)
    f(x)
    for _ in range(20):
        way.value = rng.randrange(2)
        if way.value == 0:
            np.testing.assert_array_equal(f(x).numpy(), (F.exp(x) + 1).numpy())
            continue
        with pytest.raises(RuntimeError, match="trace error because") as e:
            f(x)
        assert "test_trace_bad_behaviour.py:" in str(e.value)


@pytest.mark.parametrize("mode", MODES)
def test_two_threads(mode: str) -> None:
    """Each with a function of its own, and both with one that they share."""
    shared = trace(lambda x, k: F.sum(F.exp(x * k), axis=0), **MODES[mode])
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        own = trace(lambda x, k: F.tanh(x) * k + x, **MODES[mode])
        try:
            for i in range(40):
                shape = rng.choice([(2, 3), (4, 3), (3,)])
                x = Tensor(np.random.RandomState(seed * 100 + i).uniform(-1, 1, shape).astype(np.float32))
                k = rng.choice([1.0, 2.0, 3])
                np.testing.assert_array_equal(own(x, k).numpy(), (F.tanh(x) * k + x).numpy())
                np.testing.assert_array_equal(shared(x, k).numpy(), F.sum(F.exp(x * k), axis=0).numpy())
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    if failed:
        raise failed[0]
