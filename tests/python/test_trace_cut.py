"""Traced calls with results whose size depends on values: compiled up to there, eager from there on, right always."""

from __future__ import annotations

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.core._core import TraceError
from megengine.jit import is_tracing, trace
from megengine.optimizer import SGD

HOST = pytest.mark.parametrize("without_host", [False, True], ids=["host", "without_host"])


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randn(*shape).astype("float32")


PROGRAMS = {
    "mask": lambda x: x[x > 0] * 2,
    "mask_then_names_sizes": lambda x: x[x > 0].reshape(1, -1) + F.zeros((1, x[x > 0].shape[0])),
    "mask_of_rows": lambda x: F.softmax(x[x[:, 0] > 0] + 1),
    "non_zero": lambda x: F.non_zero(x > 0),
    "cond_take": lambda x: F.cond_take(x > 0, x)[0].sum(),
    "tensor_bounds": lambda x: x[: (x[:, 0] > 0).astype("int32").sum()] + 1,
    "nms": lambda x: F.vision.nms(F.concat([x[:, :2], x[:, :2] + 1], axis=1), x[:, 2], 0.3),
}


@HOST
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_change_from_call_to_call(name: str, without_host: bool) -> None:
    fn = PROGRAMS[name]
    traced = trace(lambda x: fn(F.sin(x) * 2), without_host=without_host)
    sizes = set()
    for seed in range(5):
        x = Tensor(array(8, 4, seed=seed))
        want, got = fn(F.sin(x) * 2).numpy(), traced(x).numpy()
        assert want.shape == got.shape and want.tobytes() == got.tobytes()
        sizes.add(got.shape)
    assert len(sizes) > 1 or name == "cond_take"


@HOST
def test_a_training_step_has_the_same_bits(without_host: bool) -> None:
    """The loss takes some rows only; backward and the optimizer come after it."""

    def train(mode) -> list[bytes]:
        mge.random.seed(1)
        net = M.Sequential(M.Linear(6, 16), M.BatchNorm1d(16), M.ReLU(), M.Dropout(0.2), M.Linear(16, 3))
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

        @mode
        def step(x: Tensor, y: Tensor) -> Tensor:
            with gm:
                logits = net(x)
                labelled = y >= 0
                loss = F.nn.cross_entropy(logits[labelled], y[labelled])
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        losses = [
            step(Tensor(array(20, 6, seed=i)), Tensor(np.random.RandomState(i).randint(-1, 3, 20).astype("int32")))
            for i in range(5)
        ]
        return [t.numpy().tobytes() for t in losses] + [v.tobytes() for v in net.state_dict().values()]

    assert train(lambda f: f) == train(trace(without_host=without_host))


@HOST
def test_what_comes_before_is_compiled(without_host: bool) -> None:
    tracing = []

    @trace(without_host=without_host)
    def f(x: Tensor) -> Tensor:
        y = F.relu(F.matmul(x, x) + 1)
        tracing.append(is_tracing())
        z = y[y > 1]
        tracing.append(is_tracing())
        return z.sum()

    for _ in range(3):
        f(Tensor(array(4, 4)))
    assert tracing == [True, False] * 3  # Python runs on every call
    assert "matmul" in f.report() and "fused" in f.report() and "reduce" not in f.report()


def test_state_from_before_and_after() -> None:
    before, after = Tensor([0.0]), Tensor([0.0])

    @trace(without_host=True)
    def f(x: Tensor) -> None:
        before._reset(before + x.sum())
        picked = x[x > 0]
        after._reset(after + picked.sum())

    for i in range(4):
        f(Tensor([1.0, -1.0, float(i)]))
    assert before.item() == 6.0 and after.item() == 4.0 + 6.0


def test_an_error_after_it_leaves_the_trace_usable() -> None:
    @trace(without_host=True)
    def f(x: Tensor) -> Tensor:
        y = (x * 2)[x > 0]
        if y.shape[0] > 2:
            raise ValueError("too many")
        return y

    with pytest.raises(ValueError, match="too many"):
        f(Tensor([1.0, 2.0, 3.0]))  # while recording
    assert f(Tensor([1.0, 2.0, -3.0])).tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match="too many"):
        f(Tensor([1.0, 2.0, 3.0]))
    assert f(Tensor([1.0, -2.0, -3.0])).tolist() == [2.0]


def test_another_place_than_in_the_recorded_call() -> None:
    steps = iter([1, 2, 1])

    @trace
    def f(x: Tensor) -> Tensor:
        for _ in range(next(steps)):
            x = x + 1
        return x[x > 0]

    f(Tensor([1.0, -1.0]))
    with pytest.raises(TraceError, match="operator mismatch"):
        f(Tensor([1.0, -1.0]))
    assert f(Tensor([1.0, -1.0])).tolist() == [2.0]


def test_where_the_recorded_call_had_none() -> None:
    pick = iter([False, True, False])

    @trace
    def f(x: Tensor) -> Tensor:
        mask = x > 0
        return x[mask] if next(pick) else x

    f(Tensor([1.0, -3.0]))
    with pytest.raises(TraceError, match="index gives a result whose size depends on values, at another place"):
        f(Tensor([1.0, -3.0]))
    assert f(Tensor([1.0, -3.0])).tolist() == [1.0, -3.0]


def test_a_traced_function_called_after_it() -> None:
    inner = trace(lambda x: x * 3, without_host=True)
    w = Parameter([2.0])
    outer = trace(lambda x: inner((x * w)[x > 0]), without_host=True)
    for x in ([1.0, -1.0], [1.0, 2.0], [-1.0, -2.0]):
        assert outer(Tensor(x)).tolist() == [6 * v for v in x if v > 0]


@pytest.mark.parametrize("without_host", [False, True])
def test_sizes_given_as_tensors_may_change_from_call_to_call(without_host: bool) -> None:
    x = mge.Tensor([1.0, 2.0])
    bodies = {
        "repeat": lambda x, n: F.repeat(x, n) * 2,
        "broadcast_to": lambda x, n: F.broadcast_to(x, F.concat([n.reshape(1), mge.Tensor([2], dtype="int32")])) * 2,
        "reshape": lambda x, n: F.broadcast_to(x, (6, 2)).reshape(n, -1) * 2,
        "tile": lambda x, n: F.tile(x, n.reshape(1)) * 2,
    }
    for name, body in bodies.items():
        traced = trace(body, without_host=without_host)
        for n in (1, 2, 3, 2):
            size = mge.Tensor(n, dtype="int32")
            want = body(x, size).numpy()
            np.testing.assert_array_equal(traced(x, size).numpy(), want, err_msg=name)


def test_sizes_that_depend_on_an_argument_are_not_frozen_into_a_file() -> None:
    traced = trace(lambda x, n: x.reshape(n, -1), capture_as_const=True)
    with pytest.raises(NotImplementedError, match="size of the result depends on values"):
        traced(mge.Tensor([1.0, 2.0]), mge.Tensor(2, dtype="int32"))
    fixed = trace(lambda x: x.reshape(mge.Tensor([2, 1], dtype="int32")), capture_as_const=True)
    assert fixed(mge.Tensor([1.0, 2.0])).shape == (2, 1)


def test_a_shape_of_floats_is_refused_at_the_call() -> None:
    with pytest.raises(RuntimeError, match="sizes must be integers; got a tensor of float32"):
        F.reshape(mge.Tensor([1.0, 2.0]), mge.Tensor([2.0, 1.0]))
