"""Softmax, normalisations and losses that users write in single ops: one pass over memory in a trace, forward and in
training steps, with the bits of the single ops."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace

RNG = np.random.RandomState(11)
X = RNG.uniform(-2, 2, (6, 5, 96)).astype("float32")
W, B = RNG.uniform(0.5, 1, 96).astype("float32"), RNG.uniform(-1, 1, 96).astype("float32")
x64, w64, b64 = X.astype("float64"), W.astype("float64"), B.astype("float64")


def softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    e = F.exp(x * w + b - F.max(x * w + b, axis=-1, keepdims=True))
    return e / F.sum(e, axis=-1, keepdims=True)


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    d = x - F.mean(x, axis=-1, keepdims=True)
    return d / F.sqrt(F.mean(d * d, axis=-1, keepdims=True) + 1e-5) * w + b


def rms_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(x * ((F.mean(x**2, axis=-1, keepdims=True) + 1e-6) ** -0.5) * w + b)


def log_softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = x * w + b
    shifted = y - F.max(y, axis=-1, keepdims=True)
    return shifted - F.log(F.sum(F.exp(shifted), axis=-1, keepdims=True))


def weighted_loss(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.sqrt(F.mean((x * w - b) ** 2)) * 0.5 + 1.0


def pooled(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A reduction of the first axis, then scale, shift, residual, activation."""
    return F.relu(F.mean(x * x, axis=0) * w + b + x[0])


def np_softmax() -> np.ndarray:
    y = x64 * w64 + b64
    e = np.exp(y - y.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def np_layer_norm() -> np.ndarray:
    d = x64 - x64.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w64 + b64


CASES: dict[Callable[..., Tensor], Callable[[], np.ndarray]] = {
    softmax: np_softmax,
    layer_norm: np_layer_norm,
    rms_norm: lambda: np.maximum(x64 / np.sqrt((x64**2).mean(-1, keepdims=True) + 1e-6) * w64 + b64, 0),
    log_softmax: lambda: np.log(np_softmax()),
    weighted_loss: lambda: np.sqrt(((x64 * w64 - b64) ** 2).mean()) * 0.5 + 1,
    pooled: lambda: np.maximum((x64**2).mean(0) * w64 + b64 + x64[0], 0),
}
ROWS = (softmax, layer_norm, rms_norm, log_softmax)


@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
def test_forward(fn: Callable[..., Tensor]) -> None:
    args = [Tensor(a) for a in (X, W, B)]
    eager = fn(*args).numpy()
    f = trace(lambda *a: fn(*a), symbolic=True, without_host=True)
    for _ in range(2):
        assert f(*args).numpy().tobytes() == eager.tobytes()
    np.testing.assert_allclose(eager, CASES[fn](), rtol=2e-5, atol=2e-6)
    kernels = re.findall(r"^ *\d+ (\w+) ", f.report(), re.M)
    if fn in ROWS:
        assert kernels == ["interp_fused_rows"]
    else:
        assert "interp_fused_split" in kernels and len(kernels) <= 2


@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
def test_training_steps(fn: Callable[..., Tensor]) -> None:
    """Three steps that change w and b: eager, host mode and without Python."""

    def train(**mode: bool) -> tuple[list[bytes], str]:
        w, b = mge.Parameter(W), mge.Parameter(B)
        gm = GradManager().attach([w, b])

        def step(x: Tensor) -> Tensor:
            with gm:
                loss = F.sum(fn(x, w, b) * x)
                gm.backward(loss)
            for p in (w, b):
                p[...] = p - 0.01 * p.grad
                p.grad = None
            return loss

        f = trace(step, **mode) if mode else step
        out = [f(Tensor(X * (1 + k))).numpy().tobytes() for k in range(3)]
        return [*out, w.numpy().tobytes(), b.numpy().tobytes()], f.report() if isinstance(f, trace) else ""

    eager = train()[0]
    assert train(symbolic=False)[0] == eager
    traced, report = train(symbolic=True, without_host=True)
    assert traced == eager
    if fn in ROWS:
        assert "interp_fused_rows" in report


def test_other_sizes() -> None:
    """One trace for several lengths of rows, also those that are too short or too long for the kernel."""
    f = trace(lambda x: softmax(x, Tensor([2.0]), Tensor([0.5])), symbolic=True, without_host=True)
    for n in (3, 40, 1025, 20000):
        x = Tensor(RNG.uniform(-2, 2, (3, n)).astype("float32"))
        want = softmax(x, Tensor([2.0]), Tensor([0.5])).numpy()
        assert f(x).numpy().tobytes() == want.tobytes()


class Leaky(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = M.Conv2d(3, 8, 3, padding=1), M.Linear(8, 5)
        self.slope = M.PReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.slope(self.fc(F.mean(F.leaky_relu(self.conv(x), 0.2), (2, 3))))


def test_leaky_activations_are_one_step() -> None:
    """Of a convolution by a constant, of a product by a parameter."""
    net = Leaky()
    net.eval()
    x = Tensor(RNG.uniform(-1, 1, (2, 3, 9, 9)).astype("float32"))
    f = trace(lambda x: net(x), symbolic=True, without_host=True)
    assert f(x).numpy().tobytes() == net(x).numpy().tobytes() == f(x).numpy().tobytes()
    report = f.report()
    assert 'act="prelu"' in report and "prelu(y," in report
    assert not re.findall(r"^ *\d+ simd_elementwise .* = prelu ", report, re.M)


@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (40, 1), (0, 64)])
def test_rows_that_are_one_value_or_one_row_in_memory(shape: tuple[int, int]) -> None:
    """What is broadcast lies once in memory; reductions read past it."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        wide = F.broadcast_to(x * 3, (5, *x.shape)) + 0 if x.size == 0 else F.broadcast_to(x * 3, (40, 64))
        total = wide.sum(axis=0, keepdims=True)
        peak = F.exp(wide - wide.sum(axis=-1, keepdims=True) * 1e-3)
        return (
            total,
            total * total,
            peak / peak.sum(axis=-1, keepdims=True),
            F.broadcast_to(x * 2, (40, 64) if x.size else x.shape).sum() * 2,
        )

    x = np.random.RandomState(3).randn(*shape).astype("float32")
    traced = trace(f, without_host=True)
    for _ in range(3):
        for got, want in zip(traced(Tensor(x)), f(Tensor(x))):
            assert got.numpy().tobytes() == want.numpy().tobytes()
