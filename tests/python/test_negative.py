"""Every registered op, called wrongly: each row of op_cases.py bent in every way its schema allows.

A bent call either works, and then its result can be read, or raises an error that starts with the op's name. Nothing
crashes, nothing is an internal error, nothing eats the machine's memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from op_case import OpCase
from op_cases import CASES

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.core import _core

HUGE = (1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
ROOM = 64 << 20  # bytes an op may take here
ALLOWED = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)

Call = tuple[str, list[Any], dict[str, Any]]


def base_call(case: OpCase) -> tuple[list[Any], dict[str, Any]]:
    arrays = case.inputs(np.random.RandomState(7))
    return [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays], dict(case.attrs)


def bent_inputs(inputs: list[Any], attrs: dict[str, Any]) -> Iterator[Call]:
    if inputs:
        yield "an input too few", inputs[:-1], attrs
        yield "an input too many", [*inputs, inputs[0]], attrs
    yield "no input", [], attrs
    for i, a in enumerate(inputs):

        def put(b: Any, i: int = i) -> list[Any]:
            return [*inputs[:i], b, *inputs[i + 1 :]]

        yield f"input {i} with an axis more", put(a[None]), attrs
        yield f"input {i} with 8 axes", put(np.zeros((1,) * (8 - min(a.ndim, 8)) + a.shape, a.dtype)), attrs
        yield f"input {i} 0-d", put(np.zeros((), a.dtype)), attrs
        if a.ndim:
            yield f"input {i} with an axis less", put(a[0] if a.shape[0] else a.reshape(-1)), attrs
            for k in range(a.ndim):
                longer = np.concatenate([a, a[(slice(None),) * k + (slice(0, 1),)]], axis=k)
                yield f"input {i} longer on axis {k}", put(longer), attrs
                yield f"input {i} empty on axis {k}", put(a[(slice(None),) * k + (slice(0, 0),)]), attrs
        for dtype in ("bool", "uint8", "int8", "int16", "int32", "float16", "float32", "float64"):
            if a.dtype != dtype:
                with np.errstate(all="ignore"):
                    yield f"input {i} as {dtype}", put(a.astype(dtype)), attrs
        if a.dtype.kind == "i":
            for n in (-1000, 1000, -(1 << 31), (1 << 31) - 1):
                yield f"input {i} full of {n}", put(np.full_like(a, n)), attrs
        else:
            yield f"input {i} full of NaN", put(np.full_like(a, np.nan)), attrs
        yield f"input {i} backwards", put(a[::-1] if a.ndim else a), attrs
        frozen = a.copy()
        frozen.flags.writeable = False
        yield f"input {i} read-only", put(frozen), attrs
        yield f"input {i} strided", put(np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a), attrs
        yield f"input {i} on another device", put(Tensor(a, device="cpu1")), attrs
        yield f"input {i} None", put(None), attrs
        yield f"input {i} a word", put("word"), attrs


def bent_attrs(inputs: list[Any], attrs: dict[str, Any], defaults: dict[str, Any]) -> Iterator[Call]:
    yield "an unknown keyword", inputs, {**attrs, "no_such_keyword": 1}
    for name, default in defaults.items():
        if name == "who":  # the name that an error starts with
            continue

        def put(v: Any, name: str = name) -> tuple[list[Any], dict[str, Any]]:
            return inputs, {**attrs, name: v}

        values: list[Any] = ["word", None, object(), [], (1,), (1, 2), 0, -1, 1, 99, -99, 1.5, float("nan"), True]
        if isinstance(default, (int, tuple)) and not isinstance(default, bool):
            values += HUGE
            values += (
                [(h,) for h in HUGE] + [(h, h) for h in HUGE] + [(0, 0), (-1, -1), (1,) * 9, (1.5,), ("x",), (1 << 70,)]
            )
            values += [1 << 70]
            here = attrs.get(name, default)
            if isinstance(here, tuple) and here:
                for h in (0, -1, 99, *HUGE):
                    values += [(h, *here[1:]), (*here[:-1], h)]
                values += [here[:-1], (*here, here[-1]), here[::-1], (here[0],) * len(here)]
        if isinstance(default, float):
            values += [-1.0, 0.0, 1e308, float("inf"), float("-inf"), 1 << 70]
        for v in values:
            yield f"{name}={v!r}", *put(v)


def check(op: str, inputs: list[Any], attrs: dict[str, Any]) -> str | None:
    """What is wrong with how the op took the call; None when nothing is."""
    start = time.perf_counter()
    try:
        # Arrays keep float64, so that a wrong dtype arrives as such.
        tensors = [_core.exact_tensor(a) if isinstance(a, np.ndarray) else a for a in inputs]
        out = getattr(_core.ops, op)(*tensors, **attrs)
        for t in out if isinstance(out, tuple) else (out,):
            assert isinstance(t, Tensor)
            t.numpy()
    except _core.InternalError as e:
        return f"internal error: {e}"
    except ALLOWED as e:
        text = str(e)
        if isinstance(e, TypeError) and "operand is None" in text:
            return None
        if isinstance(e, MemoryError):
            named = f"in {op}(" in text or text.startswith("numpy: ")
            return None if named else f"memory error does not name the op: {text}"
        if not text.startswith((f"{op}: ", "tensor: ")):
            return f"{type(e).__name__}: {text}"
    except OverflowError as e:
        return f"OverflowError: {e}"
    except BaseException as e:
        return f"{type(e).__name__}: {e}"
    spent = time.perf_counter() - start
    return None if spent < 5 else f"took {spent:.1f} s"


@pytest.fixture
def little_memory() -> Iterator[None]:
    for d in ("cpu0", "cpu1"):
        _core.set_memory_limit(_core.memory_stats(d)["allocated"] + ROOM, d)
    yield
    for d in ("cpu0", "cpu1"):
        _core.set_memory_limit(0, d)


def cases_by_op() -> dict[str, list[OpCase]]:
    by: dict[str, list[OpCase]] = {}
    for c in CASES:
        by.setdefault(c.name, []).append(c)
    return by


@pytest.mark.asan_subset
@pytest.mark.parametrize("op", sorted(cases_by_op()))
def test_bent_calls_are_clear_errors(op: str, little_memory: None) -> None:
    defaults = _core.op_info(op)["attrs"]
    wrong: list[str] = []
    seen: set[str] = set()
    for case in cases_by_op()[op][:4]:  # further rows of an op differ in numbers, not in kind
        inputs, attrs = base_call(case)
        for calls in (bent_inputs(inputs, attrs), bent_attrs(inputs, attrs, defaults)):
            for what, args, kwargs in calls:
                said = check(op, args, kwargs)
                if said is not None and said not in seen:
                    seen.add(said)
                    wrong.append(f"{case.id}, {what}: {said}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_numbers_of_an_optimizer_step_are_wide_floats(dtype: str) -> None:
    w = Tensor(np.ones(3, np.float32))
    hyper = Tensor(np.ones(1)).astype(dtype)
    with pytest.raises(TypeError, match="sgd_update: hyper must be float32 or float64; got .*Cast it first"):
        _core.ops.sgd_update(w, w, Tensor(np.float32(0.1)), hyper)


# ---- construction from NumPy


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, "uint32"),
        np.zeros(3, "uint64"),
        np.array(["a"]),
        np.array([object()]),
        np.zeros(3, "M8[s]"),
        np.zeros(3, [("a", "f4"), ("b", "i2")]),
        np.zeros((1,) * 9, "float32"),
        [[1, 2], [3]],
        "text",
        {1: 2},
        object(),
        1 << 40,
    ],
    ids=lambda a: str(getattr(a, "dtype", type(a).__name__))[:20],
)
def test_data_that_cannot_be_a_tensor(array: Any) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError)) as e:
        Tensor(array)
    assert not isinstance(e.value, _core.InternalError) and len(str(e.value)) > 10


def test_read_only_and_strided_arrays_are_copied() -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    a.flags.writeable = False
    fields = np.zeros(4, [("x", "f4"), ("y", "i2")])
    fields["x"] = [1, 2, 3, 4]
    for b in (a, a[::-1, ::2, ::-1], a.T, np.broadcast_to(a[0, 0], (5, 4)), fields["x"], a[:, :0], np.float32(3)):
        t = Tensor(b)
        np.testing.assert_array_equal(t.numpy(), b)
        t += 1
    assert a[0, 0, 0] == 0
    with pytest.raises(ValueError):
        Tensor([1.0]).numpy()[0] = 2  # values are read-only outside too


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40), (1 << 62,), (1 << 31, 1 << 31, 0), (-1,), (1,) * 9])
def test_shapes_that_cannot_be(shape: tuple[int, ...]) -> None:
    for make in (F.zeros, F.ones, lambda s: F.full(s, 1), lambda s: mge.random.normal(size=s)):
        with pytest.raises((RuntimeError, ValueError, MemoryError)) as e:
            make(shape).numpy()
        assert not isinstance(e.value, _core.InternalError), e.value
    x = Tensor(np.zeros((2, 3), np.float32))
    for call in (lambda: F.broadcast_to(x, shape), lambda: x.reshape(shape) if shape != (-1,) else x.reshape(-7)):
        with pytest.raises((RuntimeError, ValueError)) as e:
            call()
        assert str(e.value).startswith(("broadcast_to", "reshape")), e.value
