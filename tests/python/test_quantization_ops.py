"""fake_quant, tqt and lsq: values and gradients against NumPy in float64, edge cases, traces, mixed precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference as ref

import megengine as mge
from megengine import amp
from megengine.autodiff import Function, GradManager
from megengine.core._core import ops
from megengine.jit import trace

LO, HI = -8, 7
DY = np.random.RandomState(5).uniform(-2, 2, (4, 3, 5)).astype(np.float32)


def draw(per_channel: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.RandomState(3)
    shape = (1, 3, 1) if per_channel else (1,)
    scale = rng.uniform(0.1, 0.5, shape).astype(np.float32)
    steps = rng.randint(-14, 14, (4, 3, 5)) + rng.uniform(-0.45, 0.45, (4, 3, 5))
    return (steps * scale).astype(np.float32), scale, rng.randint(-3, 3, shape).astype(np.float32)


def gradients(fn: Any, *arrays: np.ndarray) -> tuple[np.ndarray, list[np.ndarray | None]]:
    tensors = [mge.tensor(a) for a in arrays]
    with GradManager().attach(tensors) as gm:
        y = fn(*tensors)
        gm.backward(y, mge.tensor(DY))
    return y.numpy(), [None if t.grad is None else t.grad.numpy() for t in tensors]


@pytest.mark.parametrize("per_channel", [False, True])
def test_fake_quant_passes_the_gradient_where_the_integer_is_in_range(per_channel: bool) -> None:
    x, scale, zero = draw(per_channel)
    y, (dx, dscale, dzero) = gradients(lambda *t: ops.fake_quant(*t, qmin=LO, qmax=HI), x, scale, zero)
    q = ref.round_half_away(x.astype(np.float64) / scale) + zero
    np.testing.assert_allclose(y, (np.clip(q, LO, HI) - zero) * scale, rtol=1e-6)
    np.testing.assert_array_equal(dx, DY * ((q >= LO) & (q <= HI)))
    assert dscale is None and dzero is None


@pytest.mark.parametrize("per_channel", [False, True])
def test_tqt_learns_its_exponent(per_channel: bool) -> None:
    x, scale, _ = draw(per_channel)
    exponent = np.log2(scale)
    y, (dx, de) = gradients(lambda *t: ops.tqt(*t, qmin=LO, qmax=HI), x, exponent)
    t = 2.0 ** exponent.astype(np.float64)
    z = x / t
    r, outside = np.clip(ref.round_half_away(z), LO, HI), (z < LO - 0.5) | (z > HI + 0.5)
    np.testing.assert_allclose(y, r * t, rtol=1e-6)
    np.testing.assert_array_equal(dx, DY * ~outside)
    want = DY * t * np.log(2) * np.where(outside, r, r - z)
    axes = (0, 2) if per_channel else (0, 1, 2)
    np.testing.assert_allclose(de, want.sum(axes).reshape(scale.shape), rtol=1e-4)


@pytest.mark.parametrize("per_channel", [False, True])
def test_lsq_learns_its_step(per_channel: bool) -> None:
    x, scale, zero = draw(per_channel)
    y, (dx, ds, dz, df) = gradients(lambda *t: ops.lsq(*t, qmin=LO, qmax=HI), x, scale, zero, np.array(0.3, np.float32))
    z = x.astype(np.float64) / scale + zero
    np.testing.assert_allclose(y, ref.fake_quant(x.astype(np.float64), scale, zero, LO, HI), rtol=1e-6, atol=1e-7)
    inside = (z >= LO) & (z <= HI)
    np.testing.assert_array_equal(dx, DY * inside)
    want = DY * 0.3 * np.where(inside, ref.round_half_away(z) - z, np.clip(z, LO, HI))
    axes = (0, 2) if per_channel else (0, 1, 2)
    np.testing.assert_allclose(ds, want.sum(axes).reshape(scale.shape), rtol=1e-4, atol=1e-5)
    assert dz is None and df is None


def test_halves_go_away_from_zero_and_nan_stays() -> None:
    x = mge.tensor(np.float32([-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 3e38]))
    one, zero = mge.tensor([1.0]), mge.tensor([0.0])
    want = np.float32([-3, -2, -1, 0, 1, 2, 3, 7, -8, np.nan, 7])
    for y in (
        ops.fake_quant(x, one, zero, qmin=LO, qmax=HI),
        ops.lsq(x, one, zero, one, qmin=LO, qmax=HI),
        ops.tqt(x, zero, qmin=LO, qmax=HI),
    ):
        np.testing.assert_array_equal(y.numpy(), want)
    (_, (dx, *_)) = gradients(
        lambda t: ops.fake_quant(t, one, zero, qmin=LO, qmax=HI), np.full(DY.shape, np.nan, np.float32)
    )
    np.testing.assert_array_equal(dx, np.zeros(DY.shape))  # outside of every range


def test_second_order_is_that_of_the_formula() -> None:
    """The gradient is linear in what comes in, and the step's goes on being differentiable in x."""
    x, scale, zero = draw(False)
    xt, st = mge.tensor(x), mge.tensor(scale)
    with GradManager().attach([xt, st]) as outer:
        with GradManager().attach([xt, st]) as inner:
            y = ops.lsq(xt, st, mge.tensor(zero), mge.tensor(0.3), qmin=LO, qmax=HI)
            inner.backward((y * y).sum())
        ds = st.grad
        xt.grad = st.grad = None
        outer.backward(ds.sum())
    z = x.astype(np.float64) / scale + zero
    inside = (z >= LO) & (z <= HI)
    q = np.clip(ref.round_half_away(z - zero) + zero, LO, HI) - zero
    slope = 0.3 * np.where(inside, ref.round_half_away(z) - z, np.clip(z, LO, HI))
    want = 2 * inside * slope - 2 * q * scale * 0.3 * inside / scale
    np.testing.assert_allclose(xt.grad.numpy(), want, rtol=1e-4, atol=1e-4)


def test_strides_and_channels_last_memory_do_not_matter() -> None:
    rng = np.random.RandomState(0)
    conv = mge.module.Conv2d(8, 16, 3, padding=1)
    y = conv(mge.tensor(rng.standard_normal((2, 8, 9, 9)).astype(np.float32)))  # channels-last inside
    scale = mge.tensor(rng.uniform(0.01, 0.1, (1, 16, 1, 1)).astype(np.float32))
    zero = mge.tensor(np.zeros((1, 16, 1, 1), np.float32))
    flat = mge.tensor(y.numpy())
    want = ops.fake_quant(flat, scale, zero, qmin=LO, qmax=HI).numpy()
    np.testing.assert_array_equal(ops.fake_quant(y, scale, zero, qmin=LO, qmax=HI).numpy(), want)
    turned = flat.transpose(0, 2, 3, 1)
    got = ops.fake_quant(turned, scale.transpose(0, 2, 3, 1), zero.transpose(0, 2, 3, 1), qmin=LO, qmax=HI)
    np.testing.assert_array_equal(got.numpy(), want.transpose(0, 2, 3, 1))


def test_a_trace_fuses_it_and_keeps_the_bits() -> None:
    x, scale, zero = draw(True)

    def step(x: Any, s: Any, z: Any) -> Any:
        y = ops.fake_quant(mge.functional.relu(x) + 0.1, s, z, qmin=LO, qmax=HI)
        return ops.tqt(y * 1.5, mge.functional.log(s), qmin=LO, qmax=HI)

    args = [mge.tensor(a) for a in (x, scale, zero)]
    traced = trace(without_host=True)(step)
    want = step(*args).numpy()
    for _ in range(3):
        np.testing.assert_array_equal(traced(*args).numpy(), want)


def test_mixed_precision_simulates_in_float32() -> None:
    with amp.autocast():
        y = ops.fake_quant(mge.tensor(np.float16([0.3, 1.0])), mge.tensor([0.1]), mge.tensor([0.0]), qmin=LO, qmax=HI)
    assert y.dtype == np.float32


def test_mistakes_are_told() -> None:
    x, one = mge.tensor([1.0]), mge.tensor([1.0])
    with pytest.raises(ValueError, match="fake_quant: qmin must be below qmax; got 3 and 3"):
        ops.fake_quant(x, one, one, qmin=3, qmax=3)
    with pytest.raises(ValueError, match="fake_quant: shapes .2,3. and .2. do not broadcast"):
        ops.fake_quant(mge.functional.ones((2, 3)), mge.functional.ones((2,)), one)


def test_a_custom_gradient_can_be_built_around_it() -> None:
    class Twice(Function):
        def forward(self, x: Any) -> Any:
            return ops.fake_quant(x, mge.tensor([0.5]), mge.tensor([0.0]), qmin=LO, qmax=HI)

        def backward(self, dy: Any) -> Any:
            return dy * 2

    _, (dx,) = gradients(Twice(), np.zeros(DY.shape, np.float32))
    np.testing.assert_array_equal(dx, DY * 2)
