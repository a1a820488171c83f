"""Random ops: distribution, determinism, independence of the thread count."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
from megengine.core import _core

ops = _core.ops


def state(seed: int = 7) -> mge.Tensor:
    return mge.Tensor(np.array([seed, 0, 0, 0], np.int32))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_stream_depends_on_seed_and_counter_alone(threads: int) -> None:
    before = _core.get_num_threads()
    try:
        _core.set_num_threads(threads)
        a, next_state = ops.rng_uniform(state(), shape=(100_003,), lo=-1.0, hi=3.0)
        b, _ = ops.rng_uniform(state(), shape=(100_003,), lo=-1.0, hi=3.0)
        c, _ = ops.rng_uniform(next_state, shape=(100_003,), lo=-1.0, hi=3.0)
    finally:
        _core.set_num_threads(before)
    assert a.numpy().tobytes() == b.numpy().tobytes()
    assert (a.numpy() != c.numpy()).mean() > 0.99
    head, _ = ops.rng_uniform(state(), shape=(11,), lo=-1.0, hi=3.0)
    np.testing.assert_array_equal(head.numpy(), a.numpy()[:11])  # a longer draw starts with the shorter one
    assert a.numpy().min() > -1.0 and a.numpy().max() <= 3.0
    assert abs(a.numpy().mean() - 1.0) < 0.02 and abs(a.numpy().std() - 4 / np.sqrt(12)) < 0.02


def test_normal_has_the_moments_asked_for() -> None:
    y, _ = ops.rng_normal(state(3), shape=(200_000,), mean=2.0, std=0.5)
    v = y.numpy().astype(np.float64)
    assert abs(v.mean() - 2.0) < 0.01 and abs(v.std() - 0.5) < 0.01
    z = (v - 2.0) / 0.5
    assert abs((z**3).mean()) < 0.03 and abs((z**4).mean() - 3) < 0.1


def test_seeding_the_module_repeats_the_stream() -> None:
    mge.random.seed(5)
    a = mge.random.normal(size=(4, 5)).numpy().copy()
    b = mge.random.normal(size=(4, 5)).numpy().copy()
    mge.random.seed(5)
    np.testing.assert_array_equal(mge.random.normal(size=(4, 5)).numpy(), a)
    assert not np.array_equal(a, b)


def test_dropout_masks_scales_and_passes_the_gradient_through_the_mask() -> None:
    x = mge.Tensor(np.full((300, 300), 2.0, np.float32))
    grads = []
    s = _core.GradSession()
    s.start()
    s.attach(x, grads.append)
    y, mask, _ = ops.dropout(x, state(), p=0.25)
    s.backward([y], [mge.Tensor(np.ones(y.shape, np.float32))])
    s.stop()
    kept = y.numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.01
    np.testing.assert_allclose(y.numpy()[kept], 2.0 / 0.75, rtol=1e-6)
    np.testing.assert_array_equal(grads[0].numpy(), mask.numpy())
    np.testing.assert_array_equal(mask.numpy() != 0, kept)
