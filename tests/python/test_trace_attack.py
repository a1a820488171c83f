"""Hand-written ways to use a trace (the tables of trace_cases_*.py): eager's bits or a clear refusal, on every call."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import trace_attack
import trace_cases_arguments  # noqa: F401
import trace_cases_autodiff  # noqa: F401
import trace_cases_names  # noqa: F401
import trace_cases_scaling  # noqa: F401
import trace_cases_state  # noqa: F401
import trace_cases_training  # noqa: F401
import trace_cases_values  # noqa: F401

import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor, amp
from megengine.autodiff import GradManager
from megengine.jit import trace


def test_there_are_many_cases() -> None:
    assert len(trace_attack.CASES) >= 370


@pytest.mark.parametrize("mode", trace_attack.MODES)
@pytest.mark.parametrize("name", trace_attack.CASES)
def test_traced_is_eager_or_refused(name: str, mode: str) -> None:
    trace_attack.check(name, mode)


# ---- what a table of calls cannot say


def test_constants_are_those_of_the_recorded_call() -> None:
    w = Parameter([1.0])
    f = trace(lambda x: x * w, capture_as_const=True, without_host=True)
    seen = []
    for v in (1.0, 5.0, 7.0):
        w[...] = Tensor([v])
        seen.append(f(Tensor([2.0])).item())
    assert seen == [2.0, 2.0, 2.0]


def test_recordings_for_numbers_that_never_repeat_are_dropped() -> None:
    f = trace(lambda x, k: x * k, without_host=True)
    with pytest.warns(RuntimeWarning, match=r"recorded more than \d+ times.*Pass numbers that change as Tensors"):
        for i in range(300):
            assert f(Tensor([1.0]), i * 0.5).item() == i * 0.5
    assert sum(map(len, f._entries.values())) <= 64


def test_a_trace_keeps_nothing_alive_when_it_is_gone() -> None:
    def use() -> list[weakref.ref[Any]]:
        w, net = Parameter([1.0]), M.Linear(1, 1)
        f = trace(lambda x: net(x) * w, without_host=True)
        for _ in range(3):
            f(Tensor([[1.0]]))
        return [weakref.ref(w), weakref.ref(net)]

    alive = use()
    gc.collect()
    assert [r() for r in alive] == [None, None]


def test_running_python_in_spite_of_without_host_is_said_once() -> None:
    seen: list[Tensor] = []

    def f(x: Tensor) -> Tensor:
        seen.append(x * 2)
        return x + 1

    traced = trace(f, without_host=True)
    with pytest.warns(
        RuntimeWarning, match=r"f runs Python on each call in spite of without_host=True: .*kept"
    ) as told:
        for i in range(4):
            traced(Tensor([float(i)]))
    assert len(told) == 1 and [t.item() for t in seen] == [0, 2, 4, 6]


def test_a_training_step_is_replayed_and_not_only_right() -> None:
    """Schedules, dropped steps and clipping leave Python out: one recording serves them all."""
    net = M.Linear(3, 2)
    opt, gm = optim.SGD(net.parameters(), 0.1, momentum=0.9), GradManager().attach(net.parameters())
    scaler, bodies = amp.GradScaler(init_scale=16.0, growth_interval=2), ctypes.c_long(0)

    @trace(without_host=True)
    def step(x: Tensor) -> Tensor:
        bodies.value += 1
        with gm:
            loss = (net(x) ** 2).mean()
            scaler.backward(gm, loss)
        optim.clip_grad_norm(net.parameters(), 1.0)
        opt.step().clear_grad()
        return loss

    x = Tensor(np.ones((2, 3), np.float32))
    for i in range(10):
        opt.param_groups[0].update(lr=0.1 / (i + 1), momentum=0.9 - 0.01 * i)
        step(x * float("inf") if i == 5 else x)
    assert scaler.state_dict()["scale_factor"] == 16.0 * 2**2 * 0.5 * 2**2
    assert bodies.value == 1 and np.isfinite(net.weight.numpy()).all()
