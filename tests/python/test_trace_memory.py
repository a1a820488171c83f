"""A traced step needs no more memory than the same step eagerly: neither its recording nor its program."""

from __future__ import annotations

import gc
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace
from megengine.optimizer import SGD

IMAGES = (8, 3, 64, 64)


class Net(M.Module):
    """Convolutions whose activations are large beside the parameters."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 16, 16, 32, 32)
        self.layers = [
            M.Sequential(M.Conv2d(i, o, 3, padding=1, bias=False), M.BatchNorm2d(o), M.ReLU())
            for i, o in zip(widths, widths[1:], strict=False)
        ]
        self.fc = M.Linear(32, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.fc(F.mean(x, axis=(2, 3)))


def step(net: M.Module | None = None) -> Callable[..., mge.Tensor]:
    net = net or Net()
    params = list(net.parameters())
    gm, opt = GradManager().attach(params), SGD(params, lr=0.01, momentum=0.9)

    def run(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return run


def batch() -> tuple[mge.Tensor, mge.Tensor]:
    rng = np.random.default_rng(1)
    return mge.Tensor(rng.standard_normal(IMAGES, np.float32)), mge.Tensor(rng.integers(0, 10, 8).astype(np.int32))


def told(f: Any) -> Any:
    """The programs of a traced function, as tools see them."""
    return json.loads(f._last.recording.profile())["graph_exec"]


def plan_of(f: Any) -> Any:
    (report,) = told(f)["programs"]
    return report


def peaks(fn: Callable[..., Any], calls: int = 4) -> list[int]:
    """Bytes each call needs beyond what there is before it."""
    x, y = batch()
    out = []
    for _ in range(calls):
        gc.collect()
        before = _core.memory_stats()["allocated"]
        _core.reset_peak_memory()
        fn(x, y).numpy()
        out.append(_core.memory_stats()["max_allocated"] - before)
    return out


def test_recording_lets_go_of_what_eager_lets_go_of() -> None:
    eager = max(peaks(step()))
    recorded = peaks(trace(step(), symbolic=True), 1)[0]
    assert recorded <= eager * 1.02, (recorded, eager)


@pytest.mark.parametrize("without_host", [False, True])
def test_a_traced_step_needs_no_more_than_an_eager_one(without_host: bool) -> None:
    eager = max(peaks(step()))
    traced = peaks(trace(step(), symbolic=True, without_host=without_host))
    assert max(traced[1:]) <= eager, (traced, eager)


class Wide(M.Module):
    """Parameters that are large beside the activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [M.Linear(12288, 256), M.Linear(256, 256), M.Linear(256, 10)]

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.flatten(x, 1)
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


@pytest.mark.parametrize("without_host", [False, True])
def test_state_is_updated_in_place(without_host: bool) -> None:
    f = trace(step(Wide()), symbolic=True, without_host=without_host)
    traced = peaks(f)
    weights = 4 * 12288 * 256
    assert max(traced) < 1.5 * weights, traced  # one gradient, no second parameter, no second momentum; in any call
    assert plan_of(f)["donated_vars"] == 12, plan_of(f)


def test_state_that_somebody_else_holds_stays_what_it_was() -> None:
    net = Wide()
    f = trace(step(net), symbolic=True)
    x, y = batch()
    for _ in range(3):
        f(x, y)
    held = net.layers[0].weight.detach()
    was = held.numpy().copy()
    f(x, y)
    np.testing.assert_array_equal(held.numpy(), was)
    assert not np.array_equal(net.layers[0].weight.numpy(), was)


def test_an_exception_after_the_last_op_takes_state_back() -> None:
    w = mge.Tensor(np.ones(4, np.float32))
    fails = False

    @trace(symbolic=True)
    def f(x: mge.Tensor) -> mge.Tensor:
        w[...] = w + x
        if fails:
            raise KeyError("after the update")
        return x * 2

    x = mge.Tensor(np.ones(4, np.float32))
    for _ in range(2):
        f(x)
    np.testing.assert_array_equal(w.numpy(), np.full(4, 3))
    fails = True
    with pytest.raises(KeyError):
        f(x)
    np.testing.assert_array_equal(w.numpy(), np.full(4, 3))
    fails = False
    f(x)
    np.testing.assert_array_equal(w.numpy(), np.full(4, 4))


def test_between_runs_a_program_holds_no_memory() -> None:
    x, y = batch()
    f = trace(step(), symbolic=True, without_host=True)
    for _ in range(3):
        f(x, y).numpy()
    gc.collect()
    held = _core.memory_stats()["allocated"]
    f(x, y).numpy()
    gc.collect()
    assert _core.memory_stats()["allocated"] == held
    arena = plan_of(f)["arena_bytes"]
    assert arena > 1 << 20
    del f
    gc.collect()
    assert held - _core.memory_stats()["allocated"] < arena / 8  # parameters, but no arena


def test_a_captured_cell_that_is_assigned_is_not_held_twice() -> None:
    w = mge.Tensor(np.zeros(1 << 20, np.float32))

    def add(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        w[...] = w + x[0, 0, 0, 0]
        return x[0, 0, 0, 0] + 1

    eager = max(peaks(add))
    assert peaks(trace(add, symbolic=True), 1)[0] <= eager + 4096


@pytest.mark.parametrize("without_host", [False, True])
def test_programs_as_data(without_host: bool) -> None:
    f = trace(step(), symbolic=True, without_host=without_host)
    for _ in range(2):
        f(*batch()).numpy()
    listed, report = told(f), plan_of(f)
    code = [listed["operator"][op] for op in listed["comp_seq"]]
    assert report["instructions"] == len(code) and report["lower_bound"] <= report["arena_bytes"] <= report["sum_bytes"]
    live = [0] * len(code)
    for b in listed["mem_chunk"].values():
        if b["kind"] not in ("arena", "workspace"):
            continue
        assert b["address"] + b["size"] <= report["arena_bytes"]
        for t in range(b["first"], b["last"] + 1):
            live[t] += (b["size"] + 63) // 64 * 64
    assert max(live) == report["lower_bound"]
    here = pathlib.Path(__file__).name
    assert any(
        c["type"] == "conv2d" and c["extra"]["flops"] > 1e6 and here in c["extra"]["location"]["file"] for c in code
    )
    for c in code:
        for v in c["input"] + c["output"]:
            assert listed["var"][v]["dtype"] and listed["var"][v]["mem_plan"]["mem_chunk_id"] in listed["mem_chunk"]


def test_the_plan_of_a_file(tmp_path: Any) -> None:
    net = Net()
    net.eval()
    f = trace(net, symbolic=True, capture_as_const=True)
    f(batch()[0])
    f.dump(str(tmp_path / "net.mge"), arg_names=["x"])
    data = (tmp_path / "net.mge").read_bytes()

    def plan(shapes: dict[str, list[int]]) -> Any:
        return json.loads(_core.describe_model(data, shapes))["program"]["graph_exec"]

    assert [v["name"] for v in plan({})["var"].values() if v["kind"] == "input"] == ["x"]
    large, small = (p["programs"][0]["arena_bytes"] for p in (plan({"x": [16, 3, 64, 64]}), plan({})))
    assert large > small


@pytest.mark.parametrize("without_host", [False, True])
def test_cheap_ops_are_computed_again_rather_than_failing(without_host: bool) -> None:
    w = mge.Tensor(np.full((256, 256), 0.01, np.float32))

    def f(x: mge.Tensor) -> mge.Tensor:
        a, b = F.exp(x), F.sigmoid(x * 0.5)
        wide = F.relu(F.matmul(F.concat([a, b, a, b]), w))
        return F.sum(F.matmul(wide, w).reshape(4, -1), axis=0).reshape(x.shape) * a - b

    x = mge.Tensor(np.linspace(-1, 1, 256 * 256, dtype=np.float32).reshape(256, 256))
    traced = trace(f, symbolic=True, without_host=without_host)
    want = [traced(x).numpy() for _ in range(2)][0]
    roomy = plan_of(traced)
    assert roomy["recomputed"] == 0 and roomy["recomputable_bytes"] > 0, roomy
    result = 4 * 256 * 256
    try:
        limit = _core.memory_stats()["allocated"] + roomy["arena_bytes"] + result - roomy["recomputable_bytes"] // 2
        _core.set_memory_limit(limit)
        np.testing.assert_array_equal(traced(x).numpy(), want)
        tight = plan_of(traced)
        assert tight["recomputed"] > 0 and tight["arena_bytes"] < roomy["arena_bytes"], tight
        assert "computed again to save memory" in traced.report() and "# computed again" in traced.report()
    finally:
        _core.set_memory_limit(0)
    np.testing.assert_array_equal(traced(x).numpy(), want)
    assert plan_of(traced)["recomputed"] == 0, "there is room again"
