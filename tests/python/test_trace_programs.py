"""Random tensor programs, called with other shapes, dtypes, structures and bad ends: traced calls have eager's bits.

A program is a list of statements over a growing list of tensors, a cell of state and a flag. Calls change the number,
shapes and dtypes of the arguments; some raise in the middle of the body, after state was assigned; the calls that
follow must be as if nothing were recorded. ``tools/fuzz/run.py traced_programs`` runs more of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import exclude_from_trace, trace


class Stop(Exception):
    """What a body raises when its flag says so."""


class State:
    def __init__(self) -> None:
        self.cell = Tensor(np.float32([1, 2, 3]))
        self.weight = mge.Parameter(np.float32([[0.5, -1, 2], [1, 0.25, -0.5], [2, 1, 0]]))
        self.log: list[float] = []


def pick(r: np.random.RandomState) -> int:
    return int(r.randint(100))


def float_of(v: Tensor) -> Tensor:
    return v if v.dtype == np.float32 else v.astype("float32")


def rows(v: Tensor) -> Tensor:
    """Of any tensor, one of shape (n, 3) in float32."""
    return float_of(v).reshape(-1, 3)


def sum_gradient(s: State, x: Tensor) -> Tensor:
    gm = GradManager().attach([s.weight])
    with gm:
        gm.backward((F.matmul(x, s.weight) ** 2).mean())
    g = s.weight.grad
    s.weight.grad = None
    assert g is not None
    return F.matmul(x, g)


def outside(s: State, x: Tensor) -> Tensor:
    with exclude_from_trace():
        s.log.append(float(x.sum().item()))
        return x * (2.0 if len(s.log) % 2 else -1.0)


def assigned(x: Tensor) -> Tensor:
    y = x * 1
    y[0] = 2.0
    y[:, 1] += 1
    return y


def stepped(s: State, x: Tensor) -> Tensor:
    s.cell[...] = s.cell * 0.5 + x.mean(axis=0)
    return x + s.cell


def bounded(x: Tensor) -> Tensor:
    return F.clip(x, -8, 8)


# Each takes (state, tensor of shape (n, 3), another one) and gives a tensor whose size is a multiple of 3.
OPS: dict[str, Callable[[State, Tensor, Tensor], Tensor]] = {
    "add": lambda s, x, y: x + y[:1],
    "scale": lambda s, x, y: x * 0.5 - 1,
    "tanh": lambda s, x, y: F.tanh(x),
    "leaky": lambda s, x, y: F.leaky_relu(x, 0.1),
    "softmax": lambda s, x, y: F.softmax(x, axis=1),
    "matmul": lambda s, x, y: bounded(F.matmul(x, s.weight)),
    "gram": lambda s, x, y: bounded(F.matmul(x, F.matmul(x, x, transpose_a=True))),
    "concat": lambda s, x, y: F.concat([x, y, x * 2]),
    "concat wide": lambda s, x, y: F.concat([x, x + 1], axis=1),
    "stack": lambda s, x, y: F.stack([x, F.exp(-x * x)], axis=1),
    "split": lambda s, x, y: F.split(x, 3, axis=1)[1] * x,
    "flip": lambda s, x, y: x[::-1],
    "half": lambda s, x, y: x[: (x.shape[0] + 1) // 2],
    "first": lambda s, x, y: x[0],
    "take": lambda s, x, y: x[:, mge.Tensor([2, 0, 1])],
    "transpose": lambda s, x, y: x.transpose(1, 0),
    "sum": lambda s, x, y: x - x.sum(axis=0, keepdims=True),
    "mean": lambda s, x, y: x * x.mean(),
    "max": lambda s, x, y: F.maximum(x, y.max()),
    "sort": lambda s, x, y: F.sort(x)[0],
    "cumsum": lambda s, x, y: bounded(F.cumsum(x, 0)),
    "where": lambda s, x, y: F.where(x > 0, x, x * x),
    "float16": lambda s, x, y: x.astype("float16").astype("float32") * 2,
    "int": lambda s, x, y: F.floor(x).astype("int32").astype("float32") + x,
    "rows": lambda s, x, y: x * x.shape[0],
    "broadcast": lambda s, x, y: F.broadcast_to(x[:1], (2, 3)),
    "repeat": lambda s, x, y: F.repeat(x, 2, axis=0)[:24],
    "conv": lambda s, x, y: F.conv2d(x.reshape(1, 1, -1, 3), s.weight.reshape(1, 1, 3, 3), padding=1) * 0.1,
    "pool": lambda s, x, y: F.avg_pool2d(x.reshape(1, 1, -1, 3), (1, 3), (1, 1), (0, 1)),
    "norm": lambda s, x, y: F.nn.layer_norm(x, (3,), False),
    "noise": lambda s, x, y: x + mge.random.uniform(size=(3,)),
    "assign": lambda s, x, y: assigned(x),
    "cell": lambda s, x, y: x * s.cell,
    "step": lambda s, x, y: stepped(s, x),
    "gradient": lambda s, x, y: bounded(sum_gradient(s, x)),
    "detach": lambda s, x, y: x.detach() + x,
    "read": lambda s, x, y: x * float(x.mean().item()),
    "numpy": lambda s, x, y: x + Tensor(np.tanh(y.numpy()[:1])),
    "branch": lambda s, x, y: x + 1 if x.sum().item() > 0 else x * 2,
    "size branch": lambda s, x, y: x[1:] if x._tuple_shape[0] > 3 else x,
    "mask": lambda s, x, y: x * x[x > 0].sum(),
    "outside": lambda s, x, y: outside(s, x),
    "late": lambda s, x, y: x * x[x > 0][None][0].sum(),
    "late rows": lambda s, x, y: x + F.cond_take(x > 0, x)[1].reshape(-1, 1)[:, 0].sum(),
    "late pad": lambda s, x, y: x - F.concat([x[x > 1], y[0]]).max(),
    "late loop": lambda s, x, y: x * len(x[x > 0]) + sum(v for v in x[0]),
    "arange": lambda s, x, y: x * F.arange(x.shape[0] * 3).reshape(-1, 3),
    "full": lambda s, x, y: x + F.full((x.shape[0], 3), 0.5) * F.ones_like(x),
    "loop": lambda s, x, y: F.stack([x[i] * i for i in range(len(x))]),
    "unpack": lambda s, x, y: (lambda n, m: x / (n * m))(*x.shape),
    "gather": lambda s, x, y: F.gather(x, 0, F.zeros((1, 3), dtype="int32")),
    "scatter": lambda s, x, y: F.scatter(x * 1, 0, F.zeros((1, 3), dtype="int32"), y[:1]),
    "pad": lambda s, x, y: F.nn.pad(x, ((1, 0), (0, 0)), mode="constant", constant_value=0.5),
    "resize": lambda s, x, y: F.vision.interpolate(x.reshape(1, 1, -1, 3), scale_factor=2, mode="nearest")[0, 0],
    "topk": lambda s, x, y: F.topk(x, 3, descending=True)[0],
    "argsort": lambda s, x, y: F.argsort(x)[1].astype("float32") + x,
    "one hot": lambda s, x, y: F.one_hot(F.argmax(x, axis=1), 3).astype("float32") * x,
    "outer": lambda s, x, y: bounded(F.expand_dims(x, 1) * F.expand_dims(y[:2], 0)),
    "tile": lambda s, x, y: F.tile(x[:2], (2, 1)),
    "var": lambda s, x, y: F.var(x, axis=0) + x,
    "logic": lambda s, x, y: x * F.logical_and(x > 0, F.logical_not(x > 1)).astype("float32"),
    "divide": lambda s, x, y: x / (F.abs(y[:1]) + 1),
    "mod": lambda s, x, y: x % 2 + x // 3,
    "power": lambda s, x, y: bounded(F.abs(x) ** 1.5),
    "dropout": lambda s, x, y: F.dropout(x, 0.5, training=True),
    "rebind": lambda s, x, y: (s.__setattr__("cell", s.cell * 0.5 + 0.25), x * s.cell)[1],
    "bump": lambda s, x, y: (s.cell.__iadd__(1), x + s.cell)[1],
    "nested": lambda s, x, y: NESTED(x) + x,
    "asserted": lambda s, x, y: F.utils._assert_equal(x, x + 1e-6) + F.split(x, x.shape[1], axis=1)[0],
    "checked": lambda s, x, y: x if F.isnan(x).astype("int32").sum().item() == 0 else x * 0,
}
NESTED = trace(lambda x: F.sigmoid(x) * 2, without_host=True)


def body(names: list[tuple[str, int, int]], stop_at: int, result: str, s: State) -> Callable[..., Any]:
    def f(args: Any, stop: bool, k: float) -> Any:
        values = [rows(v) for v in (args.values() if isinstance(args, dict) else args)]
        for i, (name, a, b) in enumerate(names):
            if stop and i == stop_at:
                raise Stop("asked to")
            x, y = values[a % len(values)], values[b % len(values)]
            values.append(rows(OPS[name](s, x, y))[:24])
        last = values[-1] * k
        if result == "all":
            return values
        return {"last": last, "more": (last + 1, None)} if result == "dict" else last

    return f


def frozen(v: Any) -> Any:
    if isinstance(v, Tensor):
        return str(v.dtype), v.shape, v.numpy().tobytes()
    if isinstance(v, dict):
        return {k: frozen(x) for k, x in v.items()}
    return tuple(map(frozen, v)) if isinstance(v, (list, tuple)) else v


def arguments(r: np.random.RandomState, kind: int) -> Any:
    def one(n: int, dtype: str) -> Tensor:
        return Tensor((r.randint(-6, 7, (n, 3)) / 2).astype(dtype))

    n = int(r.choice([2, 2, 2, 4, 5]))
    if kind == 1:
        return [one(n, "float32"), one(3, "float32")]
    if kind == 2:
        return {"a": one(n, "float32"), "b": one(n, "int32")}
    if kind == 3:
        return [one(n, "float16")]
    if kind == 4:
        return [one(n, "float32").reshape(n, 3, 1)]
    return [one(n, "float32")]


MODES: dict[str, dict[str, Any]] = {
    "host": {},
    "symbolic": {"symbolic": True},
    "without_host": {"without_host": True},
    "opt 3": {"without_host": True, "symbolic": True, "opt_level": 3},
    "static shapes": {"without_host": True, "symbolic_shape": False},
    "imperative": {"imperative": True},
}


def run(seed: int, mode: str) -> list[Any]:
    r = np.random.RandomState(seed)
    names = [(str(r.choice(sorted(OPS))), pick(r), pick(r)) for _ in range(r.randint(1, 7))]
    stop_at, result = int(r.randint(len(names))), str(r.choice(["last", "all", "dict"]))
    kinds = [int(k) for k in r.randint(0, 5, 2)]
    s = State()
    mge.random.seed(5)
    f = body(names, stop_at, result, s)
    call = f if mode == "eager" else trace(f, **MODES[mode])
    log: list[Any] = []
    for _ in range(7):
        args, stop, k = arguments(r, kinds[r.randint(2)]), r.randint(6) == 0, float(r.choice([1.0, 1.0, 3.0]))
        if r.randint(5) == 0:
            s.cell[...] = Tensor(np.float32([1, 0, -1]))
        try:
            out = call(args, stop, k)
        except Stop:
            if mode != "eager" and MODES[mode].get("symbolic"):  # nothing was computed: assignments are taken back
                return [*log, ("stop",)]
            log.append(("stop", s.cell.numpy().tobytes(), tuple(s.log)))
        except Exception as e:
            log.append(("raised", type(e).__name__, str(e)))
            return log
        else:
            log.append((frozen(out), s.cell.numpy().tobytes(), tuple(s.log)))
    return log


def check(seed: int) -> None:
    want = run(seed, "eager")
    for mode in MODES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            got = run(seed, mode)
        for i, (g, e) in enumerate(zip(got, want)):
            if g[0] == "raised" and e[0] != "raised":
                refused = "test_trace_programs.py" in g[2] and ("read" in g[2] or "trace error because" in g[2])
                assert refused, f"seed {seed}, {mode}, call {i}: {g[1]}: {g[2]}"
                break
            if g[0] == e[0] == "raised":  # texts say what the mode knows
                break
            assert g == e[: len(g)], f"seed {seed}, {mode}, call {i} differs from eager: {str(g)[:300]} {str(e)[:300]}"


@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int) -> None:
    for seed in range(part * 25, part * 25 + 25):
        check(seed)
