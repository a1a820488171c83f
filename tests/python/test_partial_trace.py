"""partial_trace: a compiled part of a step, with gradients through it."""

from __future__ import annotations

import ctypes
import warnings

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
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


class Counted:
    """Counts without a trace looking at it."""

    def __init__(self) -> None:
        self._n = ctypes.c_long(0)

    def __call__(self) -> None:
        self._n.value += 1

    @property
    def n(self) -> int:
        return self._n.value


class Block(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop, self.last = M.Linear(4, 8), M.BatchNorm1d(8), M.Dropout(0.5), M.Linear(8, 3)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.last(self.drop(F.relu(self.norm(self.first(x)))))


def train(wrap, results=lambda y: y, steps: int = 6) -> tuple[list, int]:
    mge.random.seed(3)
    rng = np.random.RandomState(0)
    net = Block()
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    gm = GradManager().attach(net.parameters())
    ran = Counted()

    def part(x):
        ran()
        return results(net(x))

    call, seen = wrap(part), []
    for i in range(steps):
        x = mge.Tensor(rng.rand(5 if i < 4 else 7, 4).astype("float32"))
        with gm:
            gm.attach([x])
            out = call(x * 2)
            y = out if isinstance(out, mge.Tensor) else out["y"] if isinstance(out, dict) else out[0]
            loss = (y * y).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        seen += [loss.item(), x.grad.numpy().tobytes(), [t.numpy().tobytes() for t in net.buffers()]]
    return seen, ran.n


RESULTS = {
    "one": lambda y: y,
    "pair with an unused one": lambda y: (y, y * 2),
    "dict": lambda y: {"y": y, "most": F.argmax(y, axis=1), "text": "a"},
    "the same twice": lambda y: (y, y),
}


@pytest.mark.parametrize("results", RESULTS)
def test_a_training_step_without_python(results: str) -> None:
    """Forward and backward are programs from the second call on, with the bits of eager: statistics and masks too."""
    want, eager = train(lambda f: f, RESULTS[results])
    got, traced = train(partial_trace, RESULTS[results])
    assert got == want
    assert eager == 6 and traced == 3  # the first call, and the two that record


def test_results_that_are_arguments_and_tensors_around() -> None:
    w, seen = mge.Parameter([2.0]), {}
    for name, wrap in (("eager", lambda f: f), ("partial", partial_trace)):
        losses = []
        part = wrap(lambda x, h: (x, x * h * w))
        for i in range(4):
            x = mge.Tensor([float(i + 1)])
            with GradManager().attach([w, x]) as gm:
                h = w * 3  # made outside of the part, from what is attached
                first, second = part(x, h)
                gm.backward((first + second).sum())
            losses.append((second.item(), w.grad.item(), x.grad.item()))
            w.grad = None
        seen[name] = losses
    assert seen["partial"] == seen["eager"]


def test_what_is_followed_may_change() -> None:
    """A parameter that the manager does not follow yet, a tensor of the outside that it does."""
    a, b = mge.Parameter([2.0]), mge.Parameter([5.0])
    part = partial_trace(lambda x: x * a * b)
    for wrt in ([a], [a], [a], [b], [a, b], [a, b], [b]):
        with GradManager().attach(wrt) as gm:
            gm.backward(part(mge.Tensor([3.0])))
        assert [t.grad is None or t.grad.item() for t in (a, b)] == [
            15.0 if any(t is a for t in wrt) else True, 6.0 if any(t is b for t in wrt) else True,
        ]  # fmt: skip
        a.grad = b.grad = None


def test_gradients_of_gradients_and_a_second_backward() -> None:
    x = mge.Parameter([3.0])
    cube = partial_trace(lambda x: x * x * x)
    for _ in range(4):
        with GradManager().attach([x]) as outer:
            with GradManager().attach([x]) as inner:
                inner.backward(cube(x))
            outer.backward(x.grad)
        assert x.grad.item() == 27.0 + 18.0
        x.grad = None


def test_an_error_inside_is_the_users() -> None:
    w = mge.Parameter([2.0])
    bad = False

    def f(x):
        if bad:
            raise KeyError("mine")
        return x * w

    part = partial_trace(f)
    for bad in (False, False, False, True, False):
        with GradManager().attach([w]) as gm:
            if bad:
                with pytest.raises(KeyError, match="mine"):
                    part(mge.Tensor([1.0]))
            else:
                gm.backward(part(mge.Tensor([1.0])))


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
