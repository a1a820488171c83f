"""What the tests of functions share: random arrays, comparison, gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import _core

RNG = np.random.default_rng(0)
X = np.arange(12, dtype="float32").reshape(3, 4) - 4


def rand(*shape: int, lo: float = -2.0, hi: float = 2.0) -> np.ndarray:
    return RNG.uniform(lo, hi, shape).astype("float32")


def check(got: Any, want: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    assert isinstance(got, Tensor)
    want = np.asarray(want)
    assert got.shape == want.shape, (got.shape, want.shape)
    np.testing.assert_allclose(got.numpy().astype("float64"), want.astype("float64"), rtol=rtol, atol=atol)


def gradcheck(f: Callable[..., Tensor], *arrays: np.ndarray, eps: float = 1e-5, tol: float = 1e-5) -> None:
    """Gradients of a weighted sum of f in float64 against central differences."""
    xs = [_core.exact_tensor(a.astype("float64")) for a in arrays]
    weights = None
    with GradManager().attach(xs) as gm:
        y = f(*xs)
        assert y.dtype == np.float64
        weights = RNG.standard_normal(y.shape)
        gm.backward(y, _core.exact_tensor(weights))
    for k, a in enumerate(arrays):
        want = np.zeros(a.shape)
        for i in np.ndindex(*a.shape):
            values = []
            for s in (eps, -eps):
                moved = [b.astype("float64").copy() for b in arrays]
                moved[k][i] += s
                values.append((f(*(_core.exact_tensor(m) for m in moved)).numpy() * weights).sum())
            want[i] = (values[0] - values[1]) / (2 * eps)
        assert xs[k].grad is not None, f"no gradient for input {k}"
        np.testing.assert_allclose(xs[k].grad.numpy(), want, rtol=tol, atol=tol)


def same(got: Tensor, want: np.ndarray) -> None:
    assert got.shape == want.shape, (got.shape, want.shape)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def grad_of(fn, x: np.ndarray) -> np.ndarray:
    t = Tensor(x)
    gm = GradManager().attach([t])
    with gm:
        gm.backward(fn(t).sum())
    return t.grad.numpy()
