"""A device whose memory the host cannot read, whose streams run in any order and whose work is asynchronous: what holds
on the CPU holds there, to the bit."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from op_case import OpCase
from test_conformance import CASES, GRAD_CASES, as_float32, call, case_grid, differentiable, seeded, weights_for

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, jit, optimizer
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import builtin

FAKE = "fake0"


@pytest.fixture(autouse=True)
def fresh_device() -> Iterator[None]:
    _core.test_device()
    yield
    _core.test_device()
    mge.set_default_device("xpux")
    _core.sync()


@pytest.fixture
def default_fake() -> Iterator[None]:
    mge.set_default_device(FAKE)
    yield
    mge.set_default_device("xpux")


def bits(values: Any) -> list[bytes]:
    return [v.numpy().tobytes() for v in values]


def movable(case: OpCase) -> bool:
    return not refusal(case)


def refusal(case: OpCase) -> Any:
    """The error that says why an op does not run on this device."""
    if case.name == "copy_to" and case.attrs.get("borrow"):  # only between streams of one device
        return pytest.raises(ValueError, match="different devices")
    if case.name.startswith("dist_"):
        return pytest.raises(NotImplementedError, match="Copy it to cpu0 first")
    return None


@case_grid
def test_every_op_gives_the_bits_of_the_cpu(case: OpCase) -> None:
    arrays = as_float32(seeded(case))
    if refused := refusal(case):
        with refused:
            call(case, [Tensor(a, device=FAKE) for a in arrays])[0].numpy()
        return
    want = call(case, [Tensor(a) for a in arrays])
    if not arrays:  # made on the default device
        mge.set_default_device(FAKE)
    got = call(case, [Tensor(a, device=FAKE) for a in arrays])
    assert bits(got) == bits(want)
    if case.name != "copy_to":
        assert all(g.device == FAKE for g in got)


def gradients(case: OpCase, arrays: list[np.ndarray], device: str) -> list[bytes]:
    wrt = differentiable(case, arrays)
    weights = [w.to(device) for w in weights_for(case, arrays)]
    tensors = [_core.exact_tensor(a).to(device) for a in arrays]
    grads: dict[int, Any] = {}
    s = _core.GradSession()
    s.start()
    for i in wrt:
        s.attach(tensors[i], lambda g, i=i: grads.__setitem__(i, g))
    outs = call(case, tensors)
    picked = [o for i, o in enumerate(outs) if (case.outs is None or i in case.outs) and o.dtype.kind == "f"]
    total = None
    for o, w in zip(picked, weights, strict=True):
        term = _core.ops.reduce(o.to(device) * w, mode="sum")
        total = term if total is None else total + term
    s.backward([total], [_core.exact_tensor(np.ones(())).to(device)])
    s.stop()
    return [grads[i].numpy().tobytes() for i in sorted(grads)]


@pytest.mark.parametrize("case", [c for c in GRAD_CASES if movable(c)], ids=[c.id for c in GRAD_CASES if movable(c)])
def test_gradients_have_the_bits_of_the_cpu(case: OpCase) -> None:
    arrays = seeded(case)
    assert gradients(case, arrays, FAKE) == gradients(case, arrays, "cpu0")


TRACED = [c for c in CASES if c.lite and movable(c)]


@pytest.mark.parametrize("case", TRACED, ids=[c.id for c in TRACED])
def test_traces_run_on_the_device(case: OpCase) -> None:
    arrays = as_float32(seeded(case))
    tensors = [Tensor(a, device=FAKE) for a in arrays]
    want = bits(call(case, tensors))

    def fn(*args: Any) -> tuple[Any, ...]:
        return call(case, list(args))

    for traced in (jit.trace(fn), jit.trace(fn, without_host=True), jit.trace(fn, capture_as_const=True)):
        for _ in range(2):
            assert bits(traced(*tensors)) == want


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(1, 8, 3, padding=1)
        self.bn = M.BatchNorm2d(8)
        self.drop = M.Dropout(0.2)
        self.fc = M.Linear(8 * 4 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return self.fc(self.drop(F.flatten(x, 1)))


OPTIMIZERS = {
    "sgd": lambda p: optimizer.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: optimizer.Adam(p, lr=0.01),
    "adamw": lambda p: optimizer.AdamW(p, lr=0.01),
    "adagrad": lambda p: optimizer.Adagrad(p, lr=0.05),
    "adadelta": lambda p: optimizer.Adadelta(p, lr=0.5),
    "lamb": lambda p: optimizer.LAMB(p, lr=0.01),
}


def train(mode: str, name: str, steps: int, path: pathlib.Path | None = None) -> dict[str, np.ndarray]:
    """The state after some steps on the default device; with a path, saved and loaded half-way."""
    mge.random.seed(3)
    rng = np.random.RandomState(0)
    net = Net()
    for p in net.parameters():
        p._reset(Tensor(rng.standard_normal(p.shape).astype(np.float32) * 0.2))
    opt = OPTIMIZERS[name](list(net.parameters()))
    gm = GradManager().attach(net.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    run = {"eager": step, "traced": jit.trace(step), "replayed": jit.trace(step, without_host=True)}[mode]
    losses = []
    for i in range(steps):
        x = Tensor(rng.standard_normal((4, 1, 8, 8)).astype(np.float32))
        y = Tensor(rng.randint(0, 3, 4).astype(np.int32))
        losses.append(run(x, y).numpy())
        if path is not None and i == steps // 2:
            mge.save({"net": net.state_dict(), "opt": opt.state_dict()}, str(path))
            loaded = mge.load(str(path))
            net.load_state_dict(loaded["net"])
            opt.load_state_dict(loaded["opt"])
    state = {k: np.asarray(v) for k, v in net.state_dict().items()}
    return {**state, "losses": np.array(losses)}


@pytest.mark.parametrize("mode", ["eager", "traced", "replayed"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_gives_the_bits_of_the_cpu(mode: str, name: str, tmp_path: pathlib.Path) -> None:
    want = train(mode, name, 4, tmp_path / "cpu")
    mge.set_default_device(FAKE)
    got = train(mode, name, 4, tmp_path / "fake")
    assert _core.test_device_ops() > 0
    for k, w in want.items():
        assert got[k].tobytes() == w.tobytes(), k


def test_a_replay_is_one_command_of_the_device(default_fake: None) -> None:
    w = mge.Parameter(np.ones(3, np.float32))

    @jit.trace(without_host=True)
    def f(x: Tensor) -> Tensor:
        y = F.exp(x * w) + 1
        return y.sum() + F.relu(y)

    x = Tensor([1.0, 2.0, 3.0])
    want = f(x).numpy()
    _core.sync()
    _core.test_device()
    np.testing.assert_array_equal(f(x).numpy(), want)
    assert _core.test_device_ops() == 1


def test_a_replay_does_not_wait_and_its_faults_come_with_a_line(default_fake: None) -> None:
    @jit.trace(without_host=True)
    def f(x: Tensor) -> Tensor:
        return F.exp(x) + 1

    x = Tensor([1.0, 2.0])
    f(x).numpy()
    _core.test_device(fail_at=1, fault="kernel")
    y = f(x)
    z = y * 2
    with pytest.raises(RuntimeError, match="injected fault"):
        z.numpy()
    np.testing.assert_allclose(f(x).numpy(), np.exp([1, 2]) + 1, rtol=1e-6)
    _core.test_device(fail_at=1, fault="memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        f(x).numpy()
    np.testing.assert_allclose(f(x).numpy(), np.exp([1, 2]) + 1, rtol=1e-6)


def test_index_errors_name_the_op_and_the_line(default_fake: None) -> None:
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = F.gather(x, 0, Tensor([[0, 1, 5]], dtype="int32"))  # here
    with pytest.raises(RuntimeError, match="gather") as info:
        y.numpy()
    assert "test_fake_device.py" in str(info.value)


def test_values_move_between_devices_and_streams() -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    t = Tensor(a, device="fake0")
    for device in ("fake0:1", "fake1", "cpu0", "fake1:3", "cpu1", "fake0"):
        t = (t + 1).to(device)
        a = a + 1
    np.testing.assert_array_equal(F.transpose(t, (1, 0)).to("fake1").numpy(), a.T)
    t = Tensor(a, device="fake0")[:, ::2].to("cpu0")
    np.testing.assert_array_equal(t.numpy(), a[:, ::2])


def test_numpy_pickle_and_dlpack_copy_what_others_cannot_read(tmp_path: pathlib.Path) -> None:
    a = np.arange(6, dtype=np.float32)
    t = Tensor(a, device=FAKE)
    np.testing.assert_array_equal(np.from_dlpack(t + 1), a + 1)
    mge.save(t, str(tmp_path / "t"))
    back = mge.load(str(tmp_path / "t"))
    assert back.device == FAKE
    np.testing.assert_array_equal(back.numpy(), a)
    np.testing.assert_array_equal(mge.load(str(tmp_path / "t"), map_location="cpu0").numpy(), a)


def test_random_numbers_are_those_of_the_cpu() -> None:
    def draw() -> list[bytes]:
        rng = mge.random.RNG(seed=5, device=mge.get_default_device())
        return bits(
            [rng.normal(0, 1, (100,)), rng.uniform(0, 1, (7,)), rng.permutation(50), rng.gamma(Tensor(2.0), 1.0)]
        )

    want = draw()
    mge.set_default_device(FAKE)
    assert draw() == want


def test_streams_interleave_and_nothing_is_lost() -> None:
    """Random programs over several streams and devices, moved about, agree with NumPy whatever the order."""
    for seed in range(6):
        rng = np.random.RandomState(seed)
        _core.test_device(seed=seed)
        names = ["fake0", "fake0:1", "fake0:2", "fake1", "cpu0"]
        values = [(Tensor(a, device=n), a) for n in names for a in [rng.standard_normal((5, 6)).astype(np.float32)]]
        for _ in range(60):
            t, a = values[rng.randint(len(values))]
            kind = rng.randint(4)
            if kind == 0:
                t, a = t.to(names[rng.randint(len(names))]), a
            elif kind == 1:
                t, a = t * 0.5 + 1, a * np.float32(0.5) + np.float32(1)
            elif kind == 2:
                t, a = F.transpose(t, (1, 0)).reshape(5, 6), a.T.reshape(5, 6)
            else:
                u, b = values[rng.randint(len(values))]
                t, a = t - u.to(str(t.device)), a - b
            values[rng.randint(len(values))] = (t, a)
        for t, a in values:
            np.testing.assert_array_equal(t.numpy(), a)


# ---- what is made from nothing, or read by the host, in the middle of something


@pytest.mark.parametrize("without_host", [False, True])
def test_what_a_recorded_call_makes_from_sizes_is_on_the_device(default_fake: None, without_host: bool) -> None:
    """Ops without operands have no operand to take the device from: zeros of a size that follows from another."""
    programs = {
        "zeros": lambda x: x + F.zeros((1, x.shape[1])),
        "arange": lambda x: x * F.arange(x.shape[1]),
        "of a mask": lambda x: x[x > 0].reshape(1, -1) + F.zeros((1, x[x > 0].shape[0])),  # a program in parts
    }
    for name, fn in programs.items():
        f = jit.trace(fn, without_host=without_host)
        for n in (3, 3, 4, 3):
            x = np.random.RandomState(n).randn(2, n).astype("float32")
            mge.set_default_device("cpu0")
            want = fn(Tensor(x)).numpy()
            mge.set_default_device(FAKE)
            np.testing.assert_array_equal(f(Tensor(x)).numpy(), want, name)


def test_a_table_of_numbers_that_a_rule_makes_comes_to_the_device(default_fake: None) -> None:
    x = Tensor(np.arange(12, dtype="float32").reshape(3, 4))
    [y] = apply(builtin.Reshape(), x, Tensor([2, 6]))
    np.testing.assert_array_equal(y.numpy(), np.arange(12).reshape(2, 6))
    [e] = apply(builtin.Eye(k=1, comp_node=FAKE), Tensor([3, 4]))
    np.testing.assert_array_equal(e.numpy(), np.eye(3, 4, 1))


def test_work_in_flight_keeps_no_tensor_of_a_recording(default_fake: None) -> None:
    """The attributes of an op that the device has not come to yet name the tensor that a size came from."""
    calls = []

    @jit.trace(without_host=True)
    def f(x: Tensor) -> Tensor:
        calls.append(0)
        return F.reshape(x, (x.shape[0], -1)).sum(axis=1) * 2

    _core.test_device(delay_us=2000)
    for n in (2, 3, 2):
        x = np.arange(n * 6, dtype="float32").reshape(n, 2, 3)
        np.testing.assert_array_equal(f(Tensor(x)).numpy(), x.reshape(n, -1).sum(1) * 2)
    assert len(calls) == 1


def test_an_error_of_a_part_names_the_whole(default_fake: None) -> None:
    x, index = Tensor(np.zeros((2, 3), "float32")), Tensor(np.array([7], "int32"))
    _core.test_cuda_kernels("c++")
    try:
        with pytest.raises(RuntimeError, match=r"^take: index_get: index 7 at position 0 is out of range"):
            _core.ops.take(x, index, axis=0).numpy()
    finally:
        _core.test_cuda_kernels("")


def test_threads_make_the_program_of_a_recording_once(default_fake: None) -> None:
    """While a constant goes to the device other threads run, and may want the same program."""
    weight = Tensor(np.eye(4, dtype="float32"))
    x = np.ones((2, 4), "float32")
    for _ in range(10):
        f = jit.trace(lambda a, k: F.relu(F.matmul(a, weight)) * k + F.ones(4), without_host=True)
        f(Tensor(x), 1)
        _core.test_device(delay_us=300)
        wrong: list[Any] = []

        def work() -> None:
            try:
                for k in (1, 2):
                    if (f(Tensor(x), k).numpy() != x * k + 1).any():  # noqa: B023
                        wrong.append(k)  # noqa: B023
            except BaseException as e:
                wrong.append(e)  # noqa: B023

        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not wrong


def test_a_step_by_gpu_kernels_is_the_same_traced(default_fake: None) -> None:
    """An activation behind a batch norm is not computed again with other bits."""
    _core.test_cuda_kernels("c++")

    def train(wrap: Any) -> list[bytes]:
        mge.random.seed(1)
        norm = M.BatchNorm2d(3)
        norm.train()
        gm, opt = GradManager().attach(norm.parameters()), optimizer.SGD(norm.parameters(), lr=0.5)

        def step(x: Tensor) -> Tensor:
            with gm:
                loss = (F.silu(norm(x)) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        f = wrap(step)
        xs = [np.random.RandomState(k).randn(2, 3, 5, 7).astype("float32") for k in range(3)]
        return [*bits([f(Tensor(x)) for x in xs]), *bits(norm.parameters())]

    try:
        assert train(lambda f: f) == train(lambda f: jit.trace(f, symbolic=True, without_host=True))
    finally:
        _core.test_cuda_kernels("")


def test_a_size_that_a_matched_call_computes_is_waited_for(default_fake: None) -> None:
    """It was taken for a value of the program that nobody had read, while the stream still computed it."""
    f = jit.trace(lambda x: F.vision.interpolate(x, scale_factor=2))
    for n in (5, 5, 6, 6):
        x = np.random.RandomState(n).randn(1, 2, n, n).astype("float32")
        assert bits([f(Tensor(x))]) == bits([F.vision.interpolate(Tensor(x), scale_factor=2)])
