"""Calls that are written down first and computed when they end (``symbolic``), never (``record_only``), or op by op
(``imperative``); and the names around them."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import TraceError, exclude_from_trace, trace, xla_trace
from megengine.jit.xla_backend import apply_external_convert_hook


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = M.Linear(4, 8)
        self.norm = M.BatchNorm1d(8)
        self.drop = M.Dropout(0.5)
        self.last = M.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(F.relu(self.norm(self.first(x)))))


def train(steps: int = 5, **options: Any) -> list[Any]:
    """Losses and state of a few steps whose batch size and learning rate change."""
    mge.random.seed(7)
    net = Net()
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    gm = GradManager().attach(net.parameters())

    def step(x: Tensor) -> Tensor:
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    call = trace(step, **options) if options else step
    rng = np.random.RandomState(0)
    seen = []
    for i in range(steps):
        if i == 3:
            opt.param_groups[0]["lr"] = 0.01
        x = Tensor(rng.rand(6 if i == 2 else 5, 4).astype("float32"))
        seen.append(call(x).numpy().tobytes())
        seen.append([p.numpy().tobytes() for p in (*net.parameters(), *net.buffers())])
    return seen


@pytest.mark.parametrize("without_host", [False, True])
def test_a_symbolic_training_step_has_the_bits_of_eager(without_host: bool) -> None:
    assert train(symbolic=True, without_host=without_host) == train()


def test_imperative_training_has_the_bits_of_eager() -> None:
    assert train(imperative=True) == train()


@pytest.mark.parametrize("option", ["symbolic", "record_only"])
def test_reading_inside_is_refused_with_the_line(option: str) -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum().item() > 0:
            return y
        return -y

    with pytest.raises(ValueError, match=rf"(?s)trace\({option}=True\).*test_symbolic.py:\d+") as e:
        trace(f, **{option: True})(Tensor([1.0]))
    assert "F.where" in str(e.value)


def test_what_follows_from_sizes_and_constants_can_be_read() -> None:
    @trace(symbolic=True)
    def f(x: Tensor) -> Tensor:
        assert x.shape.numpy().tolist() == [2, 3] and int(x.shape[0] * 2) == 4
        assert float((Tensor([2.0]) + 1).item()) == 3.0
        return x + int(x.shape[1])

    for _ in range(3):
        assert f(Tensor(np.zeros((2, 3), "float32"))).numpy().tolist() == [[3.0] * 3] * 2


def test_sizes_that_depend_on_values() -> None:
    f = trace(lambda x: x[x > 0] * 2, symbolic=True)
    for values in ([1.0, -1.0, 3.0], [1.0, -1.0, 3.0], [-1.0, -1.0, 5.0], [1.0, 2.0, 3.0]):
        np.testing.assert_array_equal(f(Tensor(values)).numpy(), [2 * v for v in values if v > 0])


def test_a_symbolic_call_that_fails_leaves_state_as_it_was() -> None:
    state = Tensor([1.0])

    @trace(symbolic=True)
    def f(x: Tensor) -> Tensor:
        state[...] = state * 2
        if bad:
            raise KeyError("mine")
        return x + state

    bad = True
    with pytest.raises(KeyError, match="mine"):
        f(Tensor([1.0]))
    assert state.item() == 1.0
    bad = False
    assert [f(Tensor([1.0])).item() for _ in range(3)] == [3.0, 5.0, 9.0] and state.item() == 8.0


def test_excluded_parts_of_a_symbolic_call_may_read() -> None:
    seen = []

    @trace(symbolic=True)
    def f(x: Tensor) -> Tensor:
        y = x * 2
        with exclude_from_trace():
            seen.append(y.item())
            if len(seen) % 2 == 0:
                y = -y
        return y + 1

    assert [f(Tensor([3.0])).item() for _ in range(4)] == [7.0, -5.0, 7.0, -5.0] and seen == [6.0] * 4


def test_record_only_computes_nothing_and_changes_nothing() -> None:
    mge.random.seed(11)
    want = mge.random.uniform(size=(3,)).numpy()
    mge.random.seed(11)
    norm, state = M.BatchNorm1d(2), Tensor([1.0])

    @trace(record_only=True)
    def f(x: Tensor) -> Tensor:
        state[...] = state + 1
        return norm(x) + mge.random.uniform(size=(2,)) + state

    out = f(Tensor(np.ones((4, 2), "float32")))
    assert out.shape == (4, 2)
    with pytest.raises(TraceError, match="record_only=True"):
        out.numpy()
    assert state.item() == 1.0 and not norm.running_mean.numpy().any()
    np.testing.assert_array_equal(mge.random.uniform(size=(3,)).numpy(), want)


def test_record_only_can_be_dumped() -> None:
    file = io.BytesIO()
    f = trace(lambda x: x * 2, record_only=True)
    f(Tensor([1.0, 2.0]))
    f.dump(file)
    assert file.getvalue()


@pytest.mark.parametrize("imperative", [False, True])
def test_mismatches_are_told_alike(imperative: bool) -> None:
    """Good and bad calls in turn; the reasons are those of host mode."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        if kind == "other op":
            return x - y
        if kind == "fewer":
            return x + y
        z = (x + y) * 2
        if kind == "more":
            z = z + 1
        if kind == "read":
            z.numpy()
        return z

    kind = "good"
    traced = trace(f, imperative=imperative)
    reasons = {"other op": "operator mismatch", "fewer": "data unreadable", "more": "too many instructions",
               "read": "value unreadable"}  # fmt: skip
    x, y = Tensor([1.0]), Tensor([2.0])
    assert traced(x, y).item() == 6.0
    for kind, reason in [*reasons.items()] * 5:
        with pytest.raises(TraceError) as e:
            traced(x, y)
        assert str(e.value).startswith(f"trace error because {reason}")
        kind = "good"
        assert traced(x, y).item() == 6.0


@pytest.mark.parametrize("without_host", [False, True])
def test_profiles(without_host: bool) -> None:
    f = trace(lambda x: F.relu(x @ x) + 1, profiling=True, without_host=without_host)
    for _ in range(3):
        f(Tensor(np.eye(4, dtype="float32"))).numpy()
    profile = f.get_profile()
    assert {"graph_exec", "profiler"} <= set(profile)
    assert {"device", "host", "opr_footprint"} <= set(profile["profiler"])
    times = [t for by in profile["profiler"]["device"].values() for t in by.values()]
    assert times and all(t["start"] <= t["kern"] <= t["end"] for t in times)
    with pytest.raises(ValueError, match="profiling=True"):
        trace(lambda x: x).get_profile()


def test_the_ways_to_call() -> None:
    x, net = Tensor([1.0, 2.0]), M.Linear(2, 3)
    f = trace(lambda x: x * 2, without_host=True)
    for _ in range(3):
        assert f.trace_normal(x).tolist() == f.trace_without_host_overall(x).tolist() == [2.0, 4.0]
    with pytest.raises(AssertionError, match="without_host=True"):
        trace(lambda x: x).trace_without_host(x)
    found = f.flatten_inputs(x, [x, {"a": x}], net=net)
    assert len(found) == 5 and found[0] is x
    opt = optim.SGD(net.parameters(), lr=0.5)
    f.convert_optimizer_state_to_tensor(opt)
    assert opt.param_groups[0]["lr"].item() == 0.5
    with pytest.raises(AssertionError, match="call it once"):
        f.setup_io_without_trace([x], [x])
    for hook in (f.compile, f.execute, f.compile_and_exec):
        with pytest.raises(NotImplementedError, match="subclass"):
            hook()


def test_a_backend_of_somebody_else() -> None:
    log = []

    class Mine(trace):
        third_party_backend = True

        def setup_env(self) -> None:
            log.append("setup")

        def unset_env(self) -> None:
            log.append("unset")

        def compile(self) -> None:
            log.append(f"compile {self.graph_text().count('mul')}")

        def execute(self, *args: Any, **kwargs: Any) -> Any:
            return args[0] * 20

    f = Mine(lambda x: x * 2)
    assert [f(Tensor([1.0])).item() for _ in range(3)] == [2.0, 20.0, 20.0]
    assert log == ["setup", "compile 1", "unset", "setup", "unset"]


def test_xla_trace_names_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="mge_xlalib.*without_host=True"):
        xla_trace(lambda x: x)
    with pytest.raises(AssertionError, match="without the host"):
        xla_trace(lambda x: x, without_host=False)
    with pytest.raises(AssertionError, match="fixed shapes"):
        xla_trace(lambda x: x, symbolic_shape=True)
    with pytest.raises(NotImplementedError, match="mge_xlalib"):
        apply_external_convert_hook(None, None)


def test_lazy_calls_say_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(symbolic=True)
