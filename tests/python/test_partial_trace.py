"""partial_trace: a compiled part of a step, with gradients through it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.jit import partial_trace


def step(part, net: M.Module, x: mge.Tensor) -> tuple[np.ndarray, ...]:
    with GradManager().attach(net.parameters()) as gm:
        loss = (part(x) ** 2).mean()
        gm.backward(loss)
    grads = [p.grad.numpy() for p in net.parameters()]
    for p in net.parameters():
        p.grad = None
    return (loss.numpy(), *grads)


@pytest.mark.parametrize("options", [{}, {"without_host": False}, {"trace_gmcallback": False}])
def test_gradients_flow_through_it(options: dict[str, bool]) -> None:
    mge.random.seed(3)
    net = M.Sequential(M.Linear(4, 5), M.ReLU(), M.Linear(5, 2))
    part = partial_trace(**options)(lambda x: F.tanh(net(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an open manager is the ordinary case
        for seed in range(4):
            x = mge.Tensor(np.random.RandomState(seed).randn(3, 4), dtype="float32")
            for got, want in zip(step(part, net, x), step(lambda v: F.tanh(net(v)), net, x)):
                np.testing.assert_array_equal(got, want)


def test_without_a_manager_it_is_a_trace() -> None:
    calls = []

    @partial_trace
    def f(x):
        calls.append(0)
        return x + 1

    assert [f(mge.Tensor([float(i)])).item() for i in range(5)] == [1, 2, 3, 4, 5] and len(calls) < 5


def test_other_backends_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="no backend 'xla'"):
        partial_trace(lambda x: x, backend="xla")
