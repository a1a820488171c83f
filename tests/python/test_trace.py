"""Tracing: the same bits as eager, state, changed values, errors that name the line, files."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import TraceError, exclude_from_trace, is_tracing, trace


class Net(M.Module):
    """A residual block with BatchNorm, a bit of attention and a classifier: forward and backward of most ops."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(3, 8, 3, padding=1, bias=False), M.BatchNorm2d(8)
        self.conv2, self.bn2 = M.Conv2d(8, 8, 3, padding=1), M.BatchNorm2d(8)
        self.q, self.k, self.v = M.Linear(16, 16), M.Linear(16, 16), M.Linear(16, 16)
        self.norm = M.LayerNorm(16)
        self.fc = M.Linear(8 * 16, 5)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)) + y)
        y = F.max_pool2d(y, 2)
        t = F.reshape(y, (y.shape[0], 8, 16))
        scores = F.matmul(self.q(t), self.k(t), transpose_b=True) * 0.25
        t = self.norm(t + F.matmul(F.softmax(scores, axis=2), self.v(t)))
        return self.fc(F.flatten(t, 1))


def make(seed: int = 0) -> tuple[Net, GradManager, optim.Optimizer]:
    mge.random.seed(seed)
    net = Net()
    return net, GradManager().attach(net.parameters()), optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def batches(n: int) -> list[tuple[mge.Tensor, mge.Tensor]]:
    rng = np.random.RandomState(1)
    return [
        (mge.Tensor(rng.randn(4, 3, 8, 8).astype(np.float32)), mge.Tensor(rng.randint(0, 5, 4).astype(np.int32)))
        for _ in range(n)
    ]


def run(wrap: Any, make_optimizer: Any = None, steps: int = 5) -> tuple[list[bytes], dict[str, bytes]]:
    net, gm, opt = make()
    if make_optimizer:
        opt = make_optimizer(net)

    def step(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step()
        opt.clear_grad()
        return loss

    fn = wrap(step)
    losses = []
    for i, (x, y) in enumerate(batches(steps)):
        for group in opt.param_groups:
            group["lr"] = 0.1 / (i + 1)
        losses.append(fn(x, y).numpy().tobytes())
    return losses, {k: np.asarray(v).tobytes() for k, v in net.state_dict().items()}


@pytest.mark.asan_subset
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(
    "wrap", [trace, trace(without_host=True), trace(symbolic=True)], ids=["host", "without_host", "symbolic"]
)
def test_training_steps_equal_eager_bit_for_bit_with_a_changing_lr(wrap: Any, optimizer: str) -> None:
    kind = None if optimizer == "sgd" else (lambda net: optim.Adam(net.parameters(), lr=0.1, weight_decay=0.01))
    eager, traced = run(lambda f: f, kind), run(wrap, kind)
    assert eager[0] == traced[0]  # losses
    assert eager[1] == traced[1]  # parameters and running statistics


def test_new_shapes_are_no_reason_to_record_anew() -> None:
    calls = []

    @trace(without_host=True)
    def f(x: mge.Tensor) -> mge.Tensor:
        calls.append(0)
        return F.reshape(x, (x.shape[0], -1)).sum(axis=1) * 2

    for n in (2, 3, 2, 3, 2):
        x = np.arange(n * 6, dtype=np.float32).reshape(n, 2, 3)
        np.testing.assert_array_equal(f(mge.Tensor(x)).numpy(), x.reshape(n, -1).sum(1) * 2)
    assert len(calls) == 1


def test_a_value_read_in_the_middle_is_the_value_of_this_call() -> None:
    seen: list[float] = []

    @trace
    def f(x: mge.Tensor) -> mge.Tensor:
        y = x * 3
        seen.append(float(y.sum()))
        return y + 1

    for v in (1.0, 2.0, 5.0):
        np.testing.assert_array_equal(f(mge.Tensor([v, v])).numpy(), [v * 3 + 1] * 2)
    assert seen == [6.0, 12.0, 30.0]


def test_mismatch_names_the_line_and_the_trace_stays_usable() -> None:
    flag = {"mul": True}

    @trace
    def f(x: mge.Tensor) -> mge.Tensor:
        return x * 2 if flag["mul"] else x + 2

    x = mge.Tensor([1.0, 2.0])
    f(x)
    flag["mul"] = False
    with pytest.raises(TraceError, match="^trace error because operator mismatch\n.*mul.*add") as e:
        f(x)
    assert "test_trace.py" in str(e.value)
    flag["mul"] = True
    np.testing.assert_array_equal(f(x).numpy(), [2, 4])
    assert not is_tracing()


def test_fewer_and_more_ops_than_recorded() -> None:
    n = {"count": 2}

    @trace
    def f(x: mge.Tensor) -> mge.Tensor:
        for _ in range(n["count"]):
            x = x + 1
        return x

    x = mge.Tensor([1.0])
    f(x)
    n["count"] = 1
    with pytest.raises(TraceError, match="data unreadable"):
        f(x)
    n["count"] = 3
    with pytest.raises(TraceError, match="too many instructions"):
        f(x)


def test_a_value_that_was_not_kept_cannot_be_read_later() -> None:
    leak: list[mge.Tensor] = []
    keep = {"it": False}

    @trace
    def f(x: mge.Tensor) -> mge.Tensor:
        y = x * 2
        if keep["it"]:
            leak.append(y)
        return y + 1

    f(mge.Tensor([1.0]))
    keep["it"] = True
    f(mge.Tensor([1.0]))
    with pytest.raises(RuntimeError, match="data unreadable"):
        leak[0].numpy()


def test_an_exception_in_the_function_leaves_nothing_behind() -> None:
    fail = {"now": False}

    @trace
    def f(x: mge.Tensor) -> mge.Tensor:
        y = x * 2
        if fail["now"]:
            raise KeyError("mine")
        return y

    x = mge.Tensor([1.0])
    fail["now"] = True
    with pytest.raises(KeyError, match="mine"):
        f(x)
    fail["now"] = False
    f(x)
    fail["now"] = True
    with pytest.raises(KeyError, match="mine"):
        f(x)
    fail["now"] = False
    np.testing.assert_array_equal(f(x).numpy(), [2])
    assert not is_tracing()


def test_kernel_time_error_names_op_and_line() -> None:
    @trace(without_host=True)
    def f(x: mge.Tensor, label: mge.Tensor) -> mge.Tensor:
        return F.nn.cross_entropy(x, label)  # the line that must be named

    x = mge.Tensor(np.zeros((2, 3), np.float32))
    f(x, mge.Tensor(np.array([0, 1], np.int32)))
    with pytest.raises(RuntimeError) as e:
        f(x, mge.Tensor(np.array([0, 9], np.int32)))
    text = str(e.value)
    assert "softmax_xent" in text and "label 9" in text and "test_trace.py" in text
    assert np.isfinite(f(x, mge.Tensor(np.array([0, 1], np.int32))).numpy())


def test_excluded_ops_may_vary() -> None:
    n = {"count": 0}

    @trace
    def f(x: mge.Tensor) -> mge.Tensor:
        with exclude_from_trace():
            for _ in range(n["count"]):
                mge.Tensor([1.0]) + 1
        return x * 2

    for count in (0, 3, 1):
        n["count"] = count
        np.testing.assert_array_equal(f(mge.Tensor([3.0])).numpy(), [6])


def test_structures_of_arguments_and_results() -> None:
    @trace(without_host=True)
    def f(d: dict[str, Any], pair: tuple[Any, Any], *, scale: float) -> dict[str, Any]:
        return {"sum": d["a"] + pair[1], "list": [pair[0] * scale, d["b"]], "text": "kept"}

    for k in range(3):
        a, b, c = (mge.Tensor([float(k + i)]) for i in range(3))
        out = f({"a": a, "b": b}, (b, c), scale=3.0)
        assert out["text"] == "kept"
        np.testing.assert_array_equal(out["sum"].numpy(), [2 * k + 2])
        np.testing.assert_array_equal(out["list"][0].numpy(), [3.0 * (k + 1)])
        np.testing.assert_array_equal(out["list"][1].numpy(), [k + 1])


def test_random_state_advances_inside_a_replayed_trace() -> None:
    mge.random.seed(11)
    eager = [mge.random.uniform(size=(3,)).numpy().copy() for _ in range(4)]
    mge.random.seed(11)

    @trace(without_host=True)
    def f() -> mge.Tensor:
        return mge.random.uniform(size=(3,))

    for want in eager:
        np.testing.assert_array_equal(f().numpy(), want)


def test_dump_needs_constants_and_a_call(tmp_path: pathlib.Path) -> None:
    f = trace(lambda x: x * 2)
    with pytest.raises(ValueError, match="capture_as_const"):
        f.dump(str(tmp_path / "a.mge"))
    g = trace(lambda x: x * 2, capture_as_const=True)
    with pytest.raises(ValueError, match="not been called"):
        g.dump(str(tmp_path / "a.mge"))
    g(mge.Tensor([1.0]))
    with pytest.raises(ValueError, match="unknown options"):
        g.dump(str(tmp_path / "a.mge"), enable_magic=True)
    with pytest.raises(ValueError, match="arg_names"):
        g.dump(str(tmp_path / "a.mge"), arg_names=["x", "y"])
    result = g.dump(str(tmp_path / "a.mge"), arg_names=["x"], output_names="y")
    assert (
        result.inputs == ["x"] and result.outputs == ["y"] and (tmp_path / "a.mge").stat().st_size == result.tot_bytes
    )
    with pytest.raises(AssertionError, match="Only support tensor type args"):
        trace(lambda x, n: x * n, capture_as_const=True)(mge.Tensor([1.0]), 3)


@pytest.mark.asan_subset
def test_evaluation_graph_runs_in_lite_with_the_same_bits(tmp_path: pathlib.Path) -> None:
    net, _, _ = make()
    run_net = [x for x, _ in batches(2)]
    for x in run_net:
        net(x)  # moves the running statistics
    net.eval()
    f = trace(lambda data: net(data), capture_as_const=True, without_host=True)
    want = net(run_net[0]).numpy()
    f(run_net[0])
    assert f(run_net[0]).numpy().tobytes() == want.tobytes()
    f.dump(str(tmp_path / "net.mge"), arg_names=["data"], output_names=["logits"])
    from megenginelite import LiteNetwork

    lite = LiteNetwork()
    lite.load(str(tmp_path / "net.mge"))
    lite.get_io_tensor("data").set_data_by_copy(run_net[0].numpy())
    lite.forward()
    lite.wait()
    assert lite.get_io_tensor("logits").to_numpy().tobytes() == want.tobytes()


def test_graph_text_shows_locations_and_fusion_keeps_them() -> None:
    net, _, _ = make()
    net.eval()
    f = trace(lambda data: net(data), capture_as_const=True, without_host=True)
    x = batches(1)[0][0]
    f(x)
    f(x)
    assert "test_trace.py" in f.graph_text()
    assert "conv2d_fused" in f.report() and "test_trace.py" in f.report()
    assert _core.is_tracing() is False


def test_a_region_with_results_and_a_reduction_has_the_bits_of_eager() -> None:
    def step(x: mge.Tensor, y: mge.Tensor) -> tuple[mge.Tensor, ...]:
        d = F.exp(x * y) - y
        return d, F.relu(d) * 0.5, (d * d).mean(axis=1), F.matmul(d, x, transpose_b=True)

    rng = np.random.default_rng(1)
    x, y = (mge.Tensor(rng.standard_normal((9, 1500)).astype("float32")) for _ in range(2))
    want = [t.numpy().tobytes() for t in step(x, y)]
    f = trace(step, without_host=True)
    for _ in range(3):
        assert [t.numpy().tobytes() for t in f(x, y)] == want
    assert "interp_fused_reduce" in f.report()


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True}])
def test_assigning_an_argument_whole(options: dict[str, bool]) -> None:
    """Found by test_random_programs.py: the replay kept the argument of the recorded call."""
    state = mge.Parameter([0.0])

    @trace(**options)
    def inside(x: mge.Tensor) -> list[mge.Tensor]:
        z = x + 0
        z[...] = x
        first = z * 2
        z[...] = first
        return [z, first]

    @trace(**options)
    def outside(x: mge.Tensor) -> list[mge.Tensor]:
        before = state * 1
        state[...] = x
        return [before, state * 2]

    for i in range(1, 5):
        x = mge.tensor([float(i)])
        assert [t.item() for t in inside(x)] == [2 * i, 2 * i]
        assert [t.item() for t in outside(x)] == [i - 1, 2 * i] and state.item() == i


@pytest.mark.parametrize("flag", ["symbolic", "capture_as_const", "profiling", "without_host", "imperative"])
def test_flags_are_taken_as_python_takes_them(flag: str) -> None:
    for value in (1, 0, np.bool_(True), None):
        f = trace(lambda x: x + 1, **{flag: value})  # type: ignore[arg-type]
        assert [f(mge.Tensor([1.0])).item() for _ in range(3)] == [2.0, 2.0, 2.0]
