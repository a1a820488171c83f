"""complex64: making, taking apart, arithmetic, moving, gradients; eagerly and traced."""

from __future__ import annotations

import numpy as np
import pytest
from functional_helpers import rand

import megengine.functional as F
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace


def rand_complex(*shape):
    return (rand(*shape) + 1j * rand(*shape)).astype("complex64")


def tensor(z):
    return F.complex(Tensor(z.real.copy()), Tensor(z.imag.copy()))


def test_parts_go_in_and_come_out():
    z = rand_complex(3, 4)
    t = tensor(z)
    assert t.dtype == np.complex64 and t.shape == (3, 4)
    np.testing.assert_array_equal(t.numpy(), z)
    np.testing.assert_array_equal(F.real(t).numpy(), z.real)
    np.testing.assert_array_equal(F.imag(t).numpy(), z.imag)
    r, a = rand(5, lo=0, hi=2), rand(5)
    np.testing.assert_allclose(F.polar(Tensor(r), Tensor(a)).numpy(), r * np.exp(1j * a), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2, 2)), ((0, 3), (3,))])
def test_arithmetic_broadcasts(shapes):
    a, b = (rand_complex(*s) for s in shapes)
    x, y = tensor(a), tensor(b)
    for got, want in ((x + y, a + b), (x - y, a - b), (x * y, a * b), (-x, -a)):
        assert got.dtype == np.complex64
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
    r = rand(*shapes[1])
    np.testing.assert_allclose((x * Tensor(r)).numpy(), a * r, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose((Tensor(r) * x).numpy(), a * r, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose((x * 2.0 + 1).numpy(), a * 2 + 1, rtol=1e-5, atol=1e-6)


def test_complex_tensors_move():
    z = rand_complex(4, 6)
    t = tensor(z)
    np.testing.assert_array_equal(t.reshape(3, 8).numpy(), z.reshape(3, 8))
    np.testing.assert_array_equal(t[1:, ::2].numpy(), z[1:, ::2])
    part = t.reshape(2, 12)[:, 3:]
    np.testing.assert_allclose((part * part).numpy(), z.reshape(2, 12)[:, 3:] ** 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(t[Tensor([0, 2]), Tensor([1, 1])].numpy(), z[[0, 2], [1, 1]])


def test_what_complex_tensors_cannot_do():
    t = tensor(rand_complex(3))
    for f in (F.exp, F.abs, lambda v: v / v, lambda v: v > v, lambda v: v.sum()):
        with pytest.raises(RuntimeError, match="complex64"):
            f(t)
    with pytest.raises(RuntimeError, match="im must have shape"):
        F.complex(Tensor(rand(3)), Tensor(rand(4)))
    with pytest.raises(RuntimeError, match="re must be float32"):
        F.complex(Tensor([1, 2]), Tensor([1, 2]))
    with pytest.raises(RuntimeError, match="z must be complex64"):
        F.real(Tensor([1.0]))


def loss(ar, ai, br, bi, r):
    a, b = F.complex(ar, ai), F.complex(br, bi)
    z = a * b * r - a + (-b) * 2.0
    w = z * z
    return (F.real(w) * 0.5 + F.imag(w) * 1.5 + F.imag(z)).sum()


def test_gradients_of_the_parts():
    arrays = [rand(2, 3), rand(2, 3), rand(3), rand(3), rand(2, 1)]
    ts = [Tensor(v) for v in arrays]
    with GradManager().attach(ts) as gm:
        gm.backward(loss(*ts))
    for k, v in enumerate(arrays):
        for i in np.ndindex(*v.shape):
            values = []
            for step in (1e-2, -1e-2):
                moved = [u.astype("float64").copy() for u in arrays]
                moved[k][i] += step
                a, b = moved[0] + 1j * moved[1], moved[2] + 1j * moved[3]
                z = a * b * moved[4] - a - 2 * b
                w = z * z
                values.append((w.real * 0.5 + w.imag * 1.5 + z.imag).sum())
            assert ts[k].grad.numpy()[i] == pytest.approx((values[0] - values[1]) / 2e-2, rel=1e-3, abs=1e-2)


def test_complex_values_inside_a_trace():
    f = trace(lambda x, y: F.imag(F.complex(x, y) * F.complex(y, x) + F.complex(x, x)), without_host=True)
    for _ in range(3):
        x, y = rand(5), rand(5)
        want = ((x + 1j * y) * (y + 1j * x) + (x + 1j * x)).imag
        np.testing.assert_allclose(f(Tensor(x), Tensor(y)).numpy(), want, rtol=1e-5, atol=1e-6)


def test_casts():
    x = Tensor([1.5, -2.0])
    z = _core.ops.typecvt(x, dtype="complex64")
    assert z.numpy().tolist() == [1.5 + 0j, -2 + 0j]
    assert _core.ops.typecvt(z, dtype="float32").tolist() == [1.5, -2.0]
