"""A training step that fails leaves every parameter, optimizer slot and statistic as it was before the call."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace
from megengine.optimizer import SGD, Adam, Optimizer

MODES: dict[str, dict[str, Any]] = {
    "host": {"symbolic": False},
    "symbolic": {"symbolic": True},
    "without_host": {"symbolic": True, "without_host": True},
    "any size": {"symbolic": True, "without_host": True, "symbolic_shape": True},
}


class Net(M.Module):
    """Layers that update statistics, and lookups before, between and after them."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.embed = M.Embedding(9, 6)
        self.layers = [
            rng.choice([M.Linear(6, 6), M.BatchNorm1d(6), M.ReLU(), M.LayerNorm(6)]) for _ in range(rng.randint(2, 6))
        ]
        self.head = M.Linear(6, 5)
        self.seen = Tensor(np.zeros(9, np.float32))
        self.lookup_late = rng.random() < 0.5

    def forward(self, words: Tensor, rows: Tensor) -> Tensor:
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        if self.lookup_late:
            x = x + F.mean(self.embed.weight[rows])
        return self.head(x)


@dataclasses.dataclass
class Step:
    net: Net
    opt: Optimizer
    call: Callable[..., Tensor]

    def state(self) -> dict[str, np.ndarray]:
        out = {name: t.numpy().copy() for name, t in self.net.named_tensors()}
        for p, slots in self.opt._state.items():
            for name, t in slots.items():
                out[f"{id(p)}.{name}"] = t.numpy().copy()
        return out


def make(seed: int, options: dict[str, Any] | None) -> Step:
    rng = random.Random(seed)
    mge.random.seed(seed)
    net = Net(rng)
    params = list(net.parameters())
    opt: Optimizer = rng.choice([lambda: SGD(params, lr=0.1, momentum=0.9), lambda: Adam(params, lr=0.1)])()
    gm = GradManager().attach(params)
    count_first, accuracy = rng.random() < 0.5, rng.random() < 0.5

    def step(words: Tensor, rows: Tensor, label: Tensor) -> Tensor:
        if count_first:
            net.seen[...] = net.seen + 1
        with gm:
            y = net(words, rows)
            loss = F.nn.cross_entropy(y, label)
            gm.backward(loss)
        opt.step().clear_grad()
        if not count_first:
            net.seen[rows] = net.seen[rows] + 1
        if accuracy:  # a lookup behind the updates
            loss = loss + F.sum(F.indexing_one_hot(y, label)) * 0
        return loss

    return Step(net, opt, trace(step, **options) if options is not None else step)


def data(rng: random.Random, bad: str = "") -> list[Tensor]:
    words, rows, label = ([rng.randrange(n) for _ in range(4)] for n in (9, 9, 5))
    for name, values, wrong in (("words", words, 9), ("rows", rows, -10), ("label", label, 5)):
        if name == bad:
            values[rng.randrange(4)] = wrong
    return [Tensor(np.array(v, np.int32)) for v in (words, rows, label)]


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture(params=[0, 1], ids=["inline", "async"])
def executor(request: pytest.FixtureRequest) -> Iterator[None]:
    _core.set_option("executor", request.param)
    yield
    _core.set_option("executor", 0)
    try:
        _core.sync()
    except RuntimeError:
        pass  # what nobody read


def check(seed: int, options: dict[str, Any]) -> None:
    rng, step = random.Random(seed + 1000), make(seed, options)
    good = make(seed, None)
    for call in range(8):
        bad = rng.choice(["words", "label", "rows"]) if call >= 2 and rng.random() < 0.5 else ""
        if bad == "rows" and not step.net.lookup_late:
            bad = "label"
        args = data(rng, bad)
        if not bad:
            np.testing.assert_array_equal(step.call(*args).numpy(), good.call(*args).numpy())
            continue
        before = step.state()
        with pytest.raises(RuntimeError):
            step.call(*args).numpy()
        same(step.state(), before)
    for (name, t), (_, u) in zip(step.net.named_tensors(), good.net.named_tensors(), strict=True):
        np.testing.assert_array_equal(t.numpy(), u.numpy(), err_msg=f"{seed} {name}")


@pytest.mark.parametrize("mode", MODES)
def test_a_bad_value_leaves_state_alone(mode: str, executor: None) -> None:
    for seed in range(4):  # more by tools/fuzz/traced_calls.py
        check(seed, MODES[mode])


@pytest.mark.parametrize("mode", MODES)
def test_no_memory_leaves_state_alone(mode: str) -> None:
    for seed in range(3):
        rng, step = random.Random(seed), make(seed, MODES[mode])
        for _ in range(3):
            step.call(*data(rng)).numpy()
        before, args = step.state(), data(rng)
        room = 0
        while True:  # until it is enough
            _core.set_memory_limit(_core.memory_stats()["allocated"] + room)
            try:
                step.call(*args).numpy()
                break
            except MemoryError:
                _core.set_memory_limit(0)
                same(step.state(), before)
                room += 256
            finally:
                _core.set_memory_limit(0)


def test_statistics_that_a_later_lookup_depends_on_are_kept() -> None:
    """The statistics of the batch are computed before the index is looked at."""
    norm = M.BatchNorm1d(3)
    norm.train()

    @trace(symbolic=True, without_host=True)
    def f(x: Tensor, i: Tensor) -> Tensor:
        return norm(x)[i]

    x = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3))
    for _ in range(2):
        f(x, Tensor(np.array([0, 1], np.int32))).numpy()
    before = norm.running_mean.numpy().copy(), norm.running_var.numpy().copy()
    with pytest.raises(IndexError):
        f(x, Tensor(np.array([0, 4], np.int32))).numpy()
    np.testing.assert_array_equal(norm.running_mean.numpy(), before[0])
    np.testing.assert_array_equal(norm.running_var.numpy(), before[1])


def test_state_is_still_updated_in_place() -> None:
    """What may refuse a value comes before the first update, so that memory of state can be taken over."""
    step = make(2, MODES["without_host"])
    rng = random.Random(5)
    for _ in range(3):
        step.call(*data(rng)).numpy()
    exec_ = json.loads(step.call._last.recording.profile())["graph_exec"]  # type: ignore[attr-defined]
    (plan,) = exec_["programs"]
    params = len(list(step.net.parameters()))
    assert plan["donated_vars"] >= params, plan


@pytest.mark.parametrize("shared", (False, True))
@pytest.mark.parametrize("where", (0, (slice(None), 3), [0, 2], (slice(None, None, 2), [1, 5])))
def test_a_part_that_cannot_be_written_leaves_the_tensor_alone(where: Any, shared: bool) -> None:
    x = F.transpose(F.arange(10000.0).reshape(100, 100), (1, 0)) * 1.0
    before = x.numpy().copy()
    other = x.reshape(-1) if shared else None  # then the memory is not x's alone
    for room in (0, 200, 3000):
        _core.set_memory_limit(_core.memory_stats("cpu0")["allocated"] + room, "cpu0")
        wrote = True
        try:
            x[where] = 5.0
        except mge.core._core.OutOfMemoryError:
            wrote = False
        finally:
            _core.set_memory_limit(0, "cpu0")
        if wrote:
            before[where] = 5.0
        np.testing.assert_array_equal(x.numpy(), before)
    del other
