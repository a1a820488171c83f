"""Random functions of a tensor, traced once and called with tensors of many sizes: eager's bits, or eager's error."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import megengine.functional as F
import megenginelite as lite
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace

SHAPES = [(2, 3), (4, 3), (5, 6), (1, 1), (3, 2), (0, 3), (2, 3), (7, 1)]
SLICES = [slice(1, None), slice(None, -1), slice(-3, None), slice(None, None, -1), slice(0, None, 2), slice(-1, 0, -2)]


def _sliced(x: Tensor, p: int) -> Tensor:
    return x[(slice(None),) * (p % x.ndim) + (SLICES[p // 7 % len(SLICES)],)]


def _assigned(x: Tensor, p: int) -> Tensor:
    x = x * 1
    x[(slice(None),) * (p % x.ndim) + (slice(1, None),)] = 0.5
    return x


STEPS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "times_size": lambda x, p: x * x.shape[p % x.ndim],
    "slice": _sliced,
    "set": _assigned,
    "concat": lambda x, p: F.concat([x, x * 2], axis=p % x.ndim),
    "reshape": lambda x, p: x.reshape(-1, x.shape[-1]) if x.size else x,
    "merge": lambda x, p: x.reshape(x.shape[0] * x.shape[-1], -1) if x.ndim > 1 and x.size else x,
    "mask": lambda x, p: x[x > 0],
    "sum": lambda x, p: x.sum(axis=p % x.ndim, keepdims=bool(p & 1)),
    "mean": lambda x, p: x.mean(axis=p % x.ndim, keepdims=bool(p & 1)),
    "flatten": lambda x, p: F.flatten(x),
    "transpose": lambda x, p: F.transpose(x, tuple(range(x.ndim))[::-1]),
    "pad": lambda x, p: F.concat([F.zeros((1,) + tuple(x.shape)[1:]), x], axis=0),
    "index": lambda x, p: x[-1] if p & 1 else x[None],
    "where": lambda x, p: F.where(x > 0, x, x * x),
    "wide": lambda x, p: F.broadcast_to(x, (2,) + x.shape) if x.ndim < 5 else x,
    "matmul": lambda x, p: F.matmul(x, x, transpose_b=True) if x.ndim == 2 else x,
    "decide": lambda x, p: x + 1 if x.shape[0] > 2 else x * 3,
}
# What the shape of eager mode can do, a tuple of ints; most of it holds for the numbers of one call.
AS_NUMBERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "product": lambda x, p: F.flatten(x) * np.prod(x.shape) + np.sum(x.shape[:1]) - np.max(x.shape),
    "mean of sizes": lambda x, p: x * np.mean(x.shape),
    "table": lambda x, p: x * {1: 0.5, 2: 2.0, 3: 3.0}.get(x.shape[p % x.ndim], 7.0),
    "table of shapes": lambda x, p: x * {(2, 3): 0.5, (4, 3): 2.0, (3,): 3.0}.get(x.shape, 7.0),
    "member": lambda x, p: x if x.shape[p % x.ndim] in {2, 3} else -x,
    "different": lambda x, p: x * len(set(x.shape)) + x.shape.count(3),
    "order": lambda x, p: x if x.shape < (3, 2) else x + 2,
    "bits": lambda x, p: x * (x.shape[0] & 3 | 4) + (~x.shape[-1] ^ 1) + math.trunc(x.shape[0]),
    "divmod": lambda x, p: x * divmod(x.shape[0], 3)[1] + divmod(7, x.shape[-1] + 1)[0],
    "parts": lambda x, p: (
        F.concat(F.split(x, x.shape[p % x.ndim], axis=p % x.ndim)[::-1], axis=p % x.ndim) if x.size else x
    ),
    "typed": lambda x, p: x * Tensor(x.shape[0], dtype="float32", device=x.device),
    "text": lambda x, p: x * len(f"{x.shape} {x.shape[-1]:3d}"),
}


def program(
    seed: int, steps: dict[str, Callable[[Tensor, int], Tensor]]
) -> tuple[list[str], Callable[[Tensor], Tensor]]:
    draw = random.Random(seed)
    names = [draw.choice(list(steps)) for _ in range(draw.randint(2, 6))]
    numbers = [draw.randrange(10**6) for _ in names]

    def fn(x: Tensor) -> Tensor:
        for name, p in zip(names, numbers):
            x = steps[name](x, p) if x.ndim else x + 1
        return x

    return names, fn


def with_gradient(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Also the gradient of a factor that x is multiplied with."""
    factor = Parameter([1.5])
    gm = GradManager().attach([factor])

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        with gm:
            y = fn(x * factor)
            gm.backward((y * y).sum())
        grad, factor.grad = factor.grad, None
        return y, F.zeros(1) if grad is None else grad + 0  # None: all of x was overwritten; -0 is 0

    return both


def outcome(fn: Callable[..., object], x: np.ndarray, device: str | None) -> object:
    try:
        result = fn(Tensor(x, device=device))
    except (RuntimeError, IndexError) as e:
        return type(e).__name__
    return [(t.numpy().shape, t.numpy().tobytes()) for t in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("mode", ["without_host", "symbolic", "imperative"])
@pytest.mark.parametrize("kind", ["forward", "gradient", "device"])
@pytest.mark.parametrize("seed", range(0, 240, 10))
def test_one_trace_of_many_sizes_is_eager(seed: int, kind: str, mode: str) -> None:
    device = None
    if kind == "device":
        _core.test_device()
        device = "fake0"
    warnings.simplefilter("ignore", RuntimeWarning)
    for k in range(seed, seed + 10):
        names, fn = program(k, STEPS if k < 120 else STEPS | AS_NUMBERS)
        if kind == "gradient":
            fn = with_gradient(fn)
        traced = trace(fn, **{mode: True})
        for i, shape in enumerate(SHAPES):
            x = np.random.RandomState(k + i).randn(*shape).astype("float32")
            want, got = outcome(fn, x, device), outcome(traced, x, device)
            assert (isinstance(want, str) and isinstance(got, str)) or want == got, (k, names, shape, want, got)


def test_a_file_of_many_sizes_is_eager_or_says_why_not(tmp_path: Path) -> None:
    right = refused = 0
    for k in range(60):
        names, fn = program(k, STEPS)
        traced = trace(fn, capture_as_const=True)
        try:
            traced(Tensor(np.random.RandomState(k).randn(4, 3).astype("float32")))
        except (RuntimeError, IndexError):
            continue
        path = str(tmp_path / f"{k}.mge")
        traced.dump(path)
        net = lite.LiteNetwork()
        net.load(path)
        io = net.get_io_tensor(net.get_all_input_name()[0])
        for i, shape in enumerate(SHAPES):
            x = np.random.RandomState(k + i).randn(*shape).astype("float32")
            want = outcome(fn, x, None)
            try:
                io.set_data_by_copy(x)
                net.forward()
                net.wait()
            except RuntimeError as e:
                assert isinstance(want, str) or "read a size as a number" in str(e), (k, names, shape, e)
                refused += 1
                continue
            y = net.get_io_tensor(net.get_all_output_name()[0]).to_numpy()
            assert not isinstance(want, str) and want[0][1] == y.tobytes(), (k, names, shape)
            assert want[0][0] == y.shape or (want[0][0], y.shape) == ((), (1,)), (k, names, shape)
            right += 1
    assert right > refused
