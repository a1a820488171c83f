"""What test_trace_attack.py runs: a case is a function that uses a trace in one particular way, a few calls long.

The same case runs eagerly, in host mode and with ``without_host=True``. Everything a call returned and everything it
left behind is written down; each entry must have the bits that the eager run wrote, or the call must have refused: at
recording, naming the user's line and a way out, in a case that says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import megengine as mge
import megengine.module as M
from megengine import Parameter, Tensor
from megengine._size import Size
from megengine.jit import trace
from megengine.optimizer import Optimizer

MODES = ("host", "without_host")


class Refused(Exception):
    """A traced call raised; the run of the case ends there."""


@dataclasses.dataclass
class Case:
    run: Callable[[Run], None]
    refused: frozenset[str]
    may_raise: bool
    partial: bool = False  # the refusal comes after the call has changed state, as any exception of its body may


CASES: dict[str, Case] = {}


def case(refused: str = "", may_raise: bool = False) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Adds a case. ``refused``: the modes (or "both") that refuse. ``may_raise``: the case raises, in eager too."""

    def add(fn: Callable[[Run], None]) -> Callable[[Run], None]:
        assert fn.__name__ not in CASES, f"two cases are called {fn.__name__}"
        modes = frozenset(MODES if refused == "both" else refused.split())
        CASES[fn.__name__] = Case(fn, modes, may_raise)
        return fn

    return add


class Run:
    """One run of a case in one mode: wraps functions, makes calls, writes down what it sees."""

    def __init__(self, mode: str, may_raise: bool = False) -> None:
        self.mode = mode
        self.may_raise = may_raise
        self.log: list[Any] = []
        self._bodies = ctypes.c_long(0)  # how often Python ran a traced body; a trace does not look into C
        self.watched: list[Any] = []
        self.refusal: Exception | None = None
        self.refused_while_recording = False

    @property
    def bodies(self) -> int:
        return self._bodies.value

    @property
    def traced(self) -> bool:
        return self.mode != "eager"

    def __call__(self, fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """The function as this mode runs it."""

        bodies = self._bodies

        @functools.wraps(fn)
        def body(*args: Any, **kwargs: Any) -> Any:
            bodies.value += 1
            return fn(*args, **kwargs)

        if self.mode == "eager":
            return body
        return trace(body, **({"without_host": True} if self.mode == "without_host" else {}), **options)

    def watch(self, *objects: Any) -> None:
        """State (tensors, modules, optimizers, anything frozen below) that every later call writes down too."""
        self.watched += objects

    def call(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls and writes down the result and all watched state."""
        before, bodies = freeze(self.watched), self.bodies
        try:
            result = fn(*args, **kwargs)
        except Exception as e:
            if self.may_raise and type(e) in (KeyError, ZeroDivisionError):  # the case's own
                self.log.append(("raised", type(e).__name__, freeze(self.watched)))
                return None
            if not self.traced:
                raise
            self.refusal = e
            self.refused_while_recording = self.bodies > bodies
            self.log.append(("refused", before, freeze(self.watched)))
            raise Refused from e
        self.log.append((freeze(result), freeze(self.watched)))
        return result

    def see(self, *things: Any) -> None:
        """Writes down more."""
        self.log.append(freeze(things))

    def python_ran_at_most(self, times: int) -> None:
        """With ``without_host`` the calls so far were replays but for so many."""
        if self.mode == "without_host":
            assert self.bodies <= times, f"the body ran {self.bodies} times, {times} should do"


def freeze(x: Any) -> Any:
    """A value that compares by bits and by structure."""
    if isinstance(x, Size):  # stands for the number, or the tuple of numbers, that it is in eager mode
        return freeze(x.number)
    if isinstance(x, Tensor):
        grad = getattr(x, "grad", None) if isinstance(x, Parameter) else None
        a = x.numpy()
        return (type(x).__name__, str(x.dtype), a.shape, a.tobytes(), None if grad is None else ("grad", freeze(grad)))
    if isinstance(x, np.ndarray):
        return ("array", str(x.dtype), x.shape, x.tobytes())
    if isinstance(x, np.generic):
        return ("scalar", str(x.dtype), x.tobytes())
    if isinstance(x, M.Module):
        named = sorted(x.named_tensors(), key=lambda kv: kv[0])
        return ("module", type(x).__name__, tuple((k, freeze(v)) for k, v in named))
    if isinstance(x, Optimizer):
        return ("optimizer", freeze(x.state_dict()))
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return (type(x).__qualname__, tuple((f.name, freeze(getattr(x, f.name))) for f in dataclasses.fields(x)))
    if isinstance(x, Mapping):
        return (type(x).__name__, tuple((k, freeze(v)) for k, v in x.items()))
    if isinstance(x, (tuple, list)):
        return (type(x).__qualname__, tuple(freeze(v) for v in x))
    if isinstance(x, float):
        return ("float", x.hex())
    if isinstance(x, (set, frozenset)):
        return (type(x).__name__, tuple(sorted(map(repr, x))))
    if isinstance(x, (int, str, bytes, complex, bool, type(None))):
        return (type(x).__name__, repr(x))
    return type(x).__qualname__


def run(name: str, mode: str) -> Run:
    """Runs a case from a fixed random state."""
    mge.random.seed(123)
    np.random.seed(123)
    r = Run(mode, CASES[name].may_raise)
    with warnings.catch_warnings(), contextlib.suppress(Refused):
        warnings.simplefilter("ignore", RuntimeWarning)  # Python runs on each call: allowed here
        CASES[name].run(r)
    return r


_WAY_OUT = re.compile(r"return|use|pass|call|leave|give|make|move|put|instead|outside|without_host=False|exclude", re.I)


def check(name: str, mode: str) -> None:
    """The rule of this file, for one case in one mode."""
    c = CASES[name]
    eager, traced = run(name, "eager"), run(name, mode)
    for i, (got, want) in enumerate(zip(traced.log, eager.log)):
        if isinstance(got, tuple) and got and got[0] == "refused":
            break
        assert got == want, f"{name}, {mode}: entry {i} differs from eager\n  eager  {want!r}\n  traced {got!r}"
    e = traced.refusal
    if e is None:
        assert len(traced.log) == len(eager.log)
        assert mode not in c.refused, f"{name}, {mode}: gave eager's values, though listed as refused"
        return
    if mode not in c.refused:
        raise e
    text = "\n".join([str(e), *getattr(e, "__notes__", [])])
    assert _WAY_OUT.search(text), f"the refusal names no way out: {text}"
    if traced.refused_while_recording:
        assert re.search(r"trace_(cases_\w+|attack)\.py\W+(line )?\d+", text), (
            f"the refusal does not name the line: {text}"
        )
    else:  # an argument: nothing ran, and the line is that of the first call itself
        assert len(traced.log) == 1 and "argument" in text, f"refused at a replay, not at recording: {text}"
    if c.partial:
        assert "Conditional" not in repr(traced.log[-1])
        return
    _, before, after = traced.log[-1]
    at = len(traced.log) - 1
    then = eager.log[at]
    assert after in (before, then[1] if isinstance(then, tuple) and len(then) == 2 else None), (
        f"the refused call left state behind that is neither that before nor eager's: {text}"
    )
