"""Distributions against their formulas, and samples against their moments."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.distributions import Distribution, Exponential

RATE = np.array([[0.5, 1.0, 4.0]], "float32")


@pytest.mark.parametrize("rate", [Tensor(RATE), RATE, 2.0], ids=["tensor", "array", "number"])
def test_exponential_formulas(rate):
    d = Exponential(rate)
    r = np.asarray(rate.numpy() if isinstance(rate, Tensor) else rate, "float64")
    v = np.random.default_rng(0).uniform(0.01, 2, (4, 3))
    x = Tensor(v.astype("float32"))
    assert d.batch_shape == r.shape and d.event_shape == ()
    for got, want in (
        (d.mean, 1 / r),
        (d.stddev, 1 / r),
        (d.variance, r**-2),
        (d.log_prob(x), np.log(r) - r * v),
        (d.cdf(x), 1 - np.exp(-r * v)),
        (d.icdf(x / 3), -np.log1p(-v / 3) / r),
        (d.icdf(d.cdf(x)), np.broadcast_to(v, np.broadcast_shapes(v.shape, r.shape))),
    ):
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-3 if got.shape == (4, 3) else 1e-5, atol=1e-4)


def test_exponential_samples():
    mge.random.seed(0)
    d = Exponential(RATE)
    x = d.sample((20000, 2)).numpy()
    assert x.shape == (20000, 2, 1, 3) and x.min() >= 0 and np.isfinite(x).all()
    flat = x.reshape(-1, 3)
    np.testing.assert_allclose(flat.mean(0), 1 / RATE[0], rtol=0.03)
    np.testing.assert_allclose(flat.std(0), 1 / RATE[0], rtol=0.05)
    for q in (0.1, 0.5, 0.9):  # quantiles as the inverse distribution function says
        np.testing.assert_allclose(np.quantile(flat, q, axis=0), d.icdf(Tensor(q)).numpy()[0], rtol=0.05)
    assert d.sample().shape == (1, 3) and Exponential(1.0).sample().shape == ()


def test_gradients_reach_the_rate():
    rate = Tensor([2.0])
    with GradManager().attach(rate) as gm:
        gm.backward(Exponential(rate).log_prob(Tensor([3.0])))
    assert rate.grad.item() == pytest.approx(0.5 - 3.0)


def test_expand_and_base():
    d = Exponential(2.0).expand((2, 3))
    assert d.batch_shape == (2, 3) and (d.mean.numpy() == 0.5).all()
    base = Distribution((2,), (3,))
    assert base.batch_shape == (2,) and base.event_shape == (3,) and base._extended_shape((4,)) == (4, 2, 3)
    for use in (lambda: base.mean, lambda: base.variance, lambda: base.stddev, base.sample):
        with pytest.raises(NotImplementedError, match="Distribution"):
            use()
    for name in ("log_prob", "cdf", "icdf", "expand"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(base, name)(Tensor([1.0]))
