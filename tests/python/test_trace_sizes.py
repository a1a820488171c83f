"""Traced calls of many sizes, and with results whose size depends on values: one recording, right always."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megenginelite as lite
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.core._core import TraceError
from megengine.core._trace_option import use_symbolic_shape
from megengine.jit import is_tracing, trace
from megengine.jit.tracing import set_symbolic_shape
from megengine.optimizer import SGD
from megengine.utils.comp_graph_tools import GraphInference

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


def recordings(f: trace) -> int:
    return sum(len(bucket) for bucket in f._entries.values())


@HOST
def test_all_of_it_is_compiled(without_host: bool) -> None:
    calls = []

    @trace(without_host=without_host)
    def f(x: Tensor) -> Tensor:
        calls.append(is_tracing())
        y = F.relu(F.matmul(x, x) + 1)
        return y[y > 1].sum()

    for seed in range(4):
        x = array(4, 4, seed=seed)
        y = np.maximum(x @ x + 1, 0)
        np.testing.assert_allclose(f(Tensor(x)).numpy(), y[y > 1].sum(), rtol=1e-5)
    assert calls == ([True] if without_host else [True] * 4)
    assert recordings(f) == 1
    assert "matmul" in f.report() and "fused" in f.report() and "reduce" in f.report()


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


def test_a_decision_by_such_a_size_runs_python_each_time() -> None:
    @trace(without_host=True)
    def f(x: Tensor) -> Tensor:
        y = (x * 2)[x > 0]
        if y.shape[0] > 2:
            raise ValueError("too many")
        return y

    with pytest.raises(ValueError, match="too many"):
        f(Tensor([1.0, 2.0, 3.0]))  # while recording
    assert f(Tensor([1.0, 2.0, -3.0])).tolist() == [2.0, 4.0]
    with pytest.warns(RuntimeWarning, match="a size that depends on values is used as a number"):
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
    with pytest.raises(TraceError, match="too many instructions"):
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


def run_file(path: str, **inputs: np.ndarray) -> list[np.ndarray]:
    net = lite.LiteNetwork()
    net.load(path)
    for name, value in inputs.items():
        net.get_io_tensor(name).set_data_by_copy(value)
    net.forward()
    net.wait()
    return [net.get_io_tensor(n).to_numpy() for n in net.get_all_output_name()]


def test_sizes_given_as_arguments_are_inputs_of_a_file(tmp_path: Path) -> None:
    traced = trace(lambda x, n: x.reshape(n, -1), capture_as_const=True)
    traced(mge.Tensor(array(6)), mge.Tensor(2, dtype="int32"))
    path = str(tmp_path / "m.mge")
    traced.dump(path, arg_names=["x", "n"])
    for n in (2, 3, 1):
        (y,) = run_file(path, x=array(6), n=np.array([n], "int32"))
        np.testing.assert_array_equal(y, array(6).reshape(n, -1))


# ---- many sizes


@HOST
def test_two_hundred_sizes_are_one_recording(without_host: bool) -> None:
    w = Parameter(array(3, 5))

    @trace(without_host=without_host)
    def f(x: Tensor) -> Tensor:
        y = F.relu(F.matmul(x, w)) + x.shape[0]
        return F.concat([y[1:], y[:1]], axis=0).reshape(x.shape[0] * 5)

    for n in range(1, 201):
        x = array(n, 3, seed=n)
        y = np.maximum((Tensor(x) @ w).numpy(), 0) + np.float32(n)
        np.testing.assert_array_equal(f(Tensor(x)).numpy(), np.concatenate([y[1:], y[:1]]).reshape(-1))
    assert recordings(f) == 1
    if without_host:
        assert f._last.recording.n_programs <= 16  # those used longest ago are gone


@HOST
def test_a_decision_by_a_size_is_recorded_for_each_side(without_host: bool) -> None:
    calls = []

    @trace(without_host=without_host)
    def f(x: Tensor) -> Tensor:
        calls.append(0)
        return x * 2 if x.shape[0] > 3 else x + 1

    for n in (1, 2, 3, 4, 5, 9, 1, 9, 2, 7):
        x = array(n, 2)
        np.testing.assert_array_equal(f(Tensor(x)).numpy(), x * 2 if n > 3 else x + 1)
    assert recordings(f) == 2 and (len(calls) == 2 or not without_host)


@HOST
@pytest.mark.filterwarnings("ignore:trace")
def test_a_decision_by_a_size_that_an_argument_gives(without_host: bool) -> None:
    """The shapes of the arguments are the same in all calls; what is decided is not."""

    def fn(x: Tensor, n: Tensor) -> Tensor:
        y = x[:n]
        return y * 2 if y.shape[0] > 2 else y + 1

    f = trace(fn, without_host=without_host)
    for n in (1, 5, 2, 4, 1):
        args = Tensor(array(6)), Tensor(n, dtype="int32")
        np.testing.assert_array_equal(f(*args).numpy(), fn(*args).numpy())


def test_a_number_made_of_a_size_is_recorded_for_each() -> None:
    f = trace(lambda x: x / x.shape[0] ** 0.5, without_host=True)
    for n in (1, 2, 3, 2, 1):
        np.testing.assert_array_equal(f(Tensor(array(n, 2))).numpy(), (Tensor(array(n, 2)) / n**0.5).numpy())
    assert recordings(f) == 3


# ---- models that follow the size of their input


class Detector(M.Module):
    """One level of anchors, boxes decoded from x.shape, the best ones kept by NMS."""

    def __init__(self) -> None:
        super().__init__()
        self.body = M.Sequential(M.Conv2d(3, 8, 3, stride=2, padding=1), M.BatchNorm2d(8), M.ReLU())
        self.head = M.Conv2d(8, 5, 1)
        for i, p in enumerate(self.parameters()):
            p._reset(Tensor(np.random.RandomState(i).randn(*p._tuple_shape).astype("float32") * 0.5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.head(self.body(x))
        height, width = y.shape[2], y.shape[3]
        cx = F.broadcast_to(F.arange(4, width * 8 + 4, 8), (height, width)).reshape(-1)
        cy = F.broadcast_to(F.arange(4, height * 8 + 4, 8).reshape(-1, 1), (height, width)).reshape(-1)
        out = F.transpose(y[0].reshape(5, -1), (1, 0))
        size = F.exp(out[:, 2:4]) * 6
        centre = F.stack([cx, cy], axis=1) + out[:, :2]
        boxes, scores = F.concat([centre - size, centre + size], axis=1), F.sigmoid(out[:, 4])
        sure = scores > 0.4
        boxes, scores = boxes[sure], scores[sure]
        keep = F.vision.nms(boxes, scores, 0.3)
        return boxes[keep], scores[keep], F.vision.interpolate(y, scale_factor=2)


def test_a_detector_is_replayed_and_dumped_for_all_image_sizes(tmp_path: Path) -> None:
    net = Detector()
    net.eval()
    images = [array(1, 3, h, w, seed=h + w) for h, w in ((16, 16), (24, 32), (40, 8), (16, 16), (10, 14))]
    replayed = trace(net.forward, without_host=True)
    written = trace(net.forward, symbolic=True, capture_as_const=True)
    written(Tensor(images[0]))
    path = str(tmp_path / "detector.mge")
    written.dump(path, arg_names=["image"], output_names=["boxes", "scores", "map"])
    counts = set()
    for image in images:
        want = [t.numpy() for t in net(Tensor(image))]
        counts.add(len(want[0]))
        for got in ([t.numpy() for t in replayed(Tensor(image))], run_file(path, image=image)):
            for a, b in zip(want, got):
                assert a.shape == b.shape and a.tobytes() == b.tobytes()
        (gi,) = [GraphInference(path).run(image)]
        assert all(np.array_equal(a, b) for a, b in zip(want, gi.values()))
    assert len(counts) > 2 and recordings(replayed) == 1


# ---- what x.shape is


def shapes_seen(symbolic_shape: bool = True, **options: bool) -> dict[str, object]:
    seen: dict[str, object] = {}

    @trace(symbolic_shape=symbolic_shape, **options)
    def f(x: Tensor) -> Tensor:
        n = x.shape[0]
        seen.update(
            shape=x.shape, n=n, more=n + 1, length=len(x.shape), ndim=x.ndim, zero=n == 0, array=np.asarray(x.shape),
            plain=x._tuple_shape, unpacked=[int(v) for v in x.shape], joined=x.shape + (7,), same=x.shape == (2, 3),
        )  # fmt: skip
        return x.reshape(n * 3)

    assert f(Tensor(array(2, 3)))._tuple_shape == (6,)
    return seen


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True}])
def test_shapes_are_tensors_in_a_trace(options: dict[str, bool]) -> None:
    seen = shapes_seen(**options)
    assert (
        isinstance(seen["shape"], Tensor)
        and seen["shape"].dtype == np.int32
        and seen["shape"].numpy().tolist() == [2, 3]
    )
    assert isinstance(seen["n"], Tensor) and seen["n"].ndim == 0 and int(seen["n"]) == 2
    assert isinstance(seen["more"], Tensor) and int(seen["more"]) == 3
    assert isinstance(seen["zero"], Tensor) and not seen["zero"]
    assert seen["length"] == 2 and seen["ndim"] == 2 and type(seen["ndim"]) is int
    assert seen["plain"] == (2, 3) and type(seen["plain"]) is tuple
    assert seen["unpacked"] == [2, 3] and [int(v) for v in seen["joined"]] == [2, 3, 7] and seen["same"] is True
    assert seen["array"].tolist() == [2, 3]


def test_shapes_are_tuples_elsewhere() -> None:
    assert shapes_seen(symbolic_shape=False)["shape"] == (2, 3)
    assert type(shapes_seen(symbolic_shape=False)["n"]) is int
    assert Tensor(array(2, 3)).shape == (2, 3) and type(Tensor([1.0]).shape) is tuple


def test_the_switch_of_symbolic_shapes() -> None:
    """In eager mode it makes shapes tensors; a trace goes by its own option, which the switch changes inside."""
    assert use_symbolic_shape() is False and set_symbolic_shape(True) is False
    try:
        x = Tensor(array(2, 3))
        assert isinstance(x.shape, Tensor) and x.shape.numpy().tolist() == [2, 3] and x._tuple_shape == (2, 3)
        assert Tensor(1.0).shape == () and (x.shape[0] + 1).numpy() == 3
        assert type(shapes_seen(symbolic_shape=False)["shape"]) is tuple
    finally:
        assert set_symbolic_shape(False) is True
    seen = []

    def f(x: Tensor) -> Tensor:
        seen.append((use_symbolic_shape(), type(x.shape), set_symbolic_shape(False), type(x.shape)))
        return x + 1

    traced = trace(f)
    for n in (2, 2, 3):
        assert traced(Tensor(array(n, 2))).shape == (n, 2)
    assert all(s[0] and issubclass(s[1], Tensor) and s[2] and s[3] is tuple for s in seen) and len(seen) == 3
    assert use_symbolic_shape() is False


def test_a_size_beside_a_tensor_counts_as_the_number_it_is() -> None:
    """uint8 times an int stays uint8, as in eager mode."""
    f = trace(lambda x: x * x.shape[0] + x.shape[0] // 2, without_host=True)
    for dtype in ("uint8", "float16", "float32", "int32"):
        for n in (2, 3, 5):
            x = Tensor(np.ones((n, 2), dtype))
            want, got = x * n + n // 2, f(x)
            assert got.dtype == want.dtype and got.numpy().tolist() == want.numpy().tolist()


def test_a_shape_of_floats_is_refused_at_the_call() -> None:
    with pytest.raises(RuntimeError, match="sizes must be integers; got a tensor of float32"):
        F.reshape(mge.Tensor([1.0, 2.0]), mge.Tensor([2.0, 1.0]))
