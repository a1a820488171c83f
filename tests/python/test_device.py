"""Device names, defaults, memory counters, exit handlers, import cost."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Tensor, tensor
from megengine.core._core import CompNode
from megengine.device import DeviceType, _sh, _valid_device, what_is_xpu


def run(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, *args, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name, good",
    [
        ("cpu0", True),
        ("cpux", True),
        ("xpux", True),
        ("gpu3:2", True),
        ("multithread4", True),
        ("rocm0", True),
        ("cpu", False),
        ("tpu0", False),
        ("cpu0:", False),
        ("cpu-1", False),
        ("", False),
    ],
)
def test_names(name, good):
    assert _valid_device(name) is good


def test_comp_node():
    c = CompNode("xpux")
    assert (str(c), c.logical_name) == ("xpux:0", "xpux:0")
    assert c.physical_name in ("cpu0:0", "gpu0:0") and len(c.physical_locator) == 3
    assert repr(c) == f'CompNode("{c.physical_name}" from "xpux:0")'
    assert CompNode("multithread4:1").physical_locator == ["multithread", 1, 4]
    assert CompNode("cpu2:3").physical_locator == ["cpu", 2, 3]
    assert c == CompNode("xpux") and c == "xpux" and c == "xpux:0" and c != "cpu0:1" and c != 3
    assert hash(c) == hash(CompNode("xpux:0"))
    assert pickle.loads(pickle.dumps(c)) == c
    with pytest.raises(ValueError):
        CompNode("nowhere0")


def test_default_device():
    assert mge.get_default_device() == "xpux"
    try:
        mge.set_default_device("cpu0")
        assert mge.get_default_device() == "cpu0" and Tensor([1.0]).device == "cpu0"
        assert F.zeros((2,)).device == "cpu0" and F.arange(3).device == "cpu0"
    finally:
        mge.set_default_device()
    assert mge.get_default_device() == "xpux"
    for bad in ("nowhere", 3, CompNode("cpu0")):
        with pytest.raises(AssertionError, match="bad device name"):
            mge.set_default_device(bad)


def test_default_device_from_the_environment():
    out = run(
        """
        import os
        os.environ["MGE_DEFAULT_DEVICE"] = "cpu0"
        import megengine as mge
        print(mge.get_default_device(), mge.tensor([1.0]).device)
        """
    )
    assert out.split() == ["cpu0", "cpu0:0"]


def test_counts():
    assert mge.get_device_count("cpu") >= 1
    for kind in ("gpu", "xpu", "rocm", "cambricon", "atlas"):
        assert mge.get_device_count(kind) >= 0
    with pytest.raises(AssertionError):
        mge.get_device_count("tpu")
    assert mge.is_cuda_available() == (mge.get_device_count("gpu") > 0)
    assert not mge.is_rocm_available() and not mge.is_atlas_available() and not mge.is_cambricon_available()
    assert what_is_xpu() in ("cpu", "cuda")
    assert _sh.get_next() + 1 == _sh.get_next()


def test_ambiguous_devices():
    with pytest.raises(ValueError):
        Tensor([1.0], device="cpu0") + Tensor([1.0], device="cpu0:1")


NODES = ["cpu0", "cpu1", "cpu0:1", "cpux", "xpux", "multithread2:0", "multithread4:1"]


@pytest.mark.parametrize("name", NODES)
def test_ops_run_where_their_inputs_are(name):
    a = np.arange(12, dtype="float32").reshape(3, 4)
    x = Tensor(a, device=name)
    y = F.matmul(x + 1, F.transpose(x * 2.0, (1, 0)))
    assert x.device == name and y.device == name
    np.testing.assert_array_equal(y.numpy(), (a + 1) @ (a * 2).T)
    assert F.zeros((2,), device=name).device == name and F.ones_like(x).device == name
    assert F.arange(3, device=name).device == name and x[1:, None].device == name
    x[0] = 5
    assert x.device == name and x.numpy()[0].tolist() == [5] * 4
    assert (pickle.loads(pickle.dumps(x))).device == name


def test_a_node_is_one_thing_under_many_names():
    assert (Tensor([1.0], device="xpux") + Tensor([1.0], device="cpu0")).device == "xpux"
    assert (Tensor([1.0], device="cpux") + Tensor([1.0], device="xpux")).device == "cpux"


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x + y,
        lambda x, y: F.concat([x, y]),
        lambda x, y: F.matmul(x, y),
        lambda x, y: F.where(x > 0, x, y),
        lambda x, y: x.__setitem__(slice(0, 1), y[:1]),
    ],
)
def test_mixed_devices_are_an_error_that_says_what_to_do(call):
    x, y = (Tensor(np.ones((2, 2), "float32"), device=d) for d in ("cpu0", "cpu1"))
    with pytest.raises(ValueError, match=r"ambiguous device; inputs are on cpu0:0 and cpu1:0. Move one with .to\(\)"):
        call(x, y)
    assert F.concat([x, y], device="cpu1").device == "cpu1"


def test_names_of_devices_that_are_not_there():
    for bad in ("gpu0", "cpu4000", "multithread0:0"):
        with pytest.raises(ValueError, match="device: "):
            Tensor([1.0], device=bad)
    out = run(
        """
        import megengine as mge
        for make in (lambda: mge.tensor([1.0]).to("fake0"), lambda: mge.tensor([1.0], device="fake0")):
            try:
                make()
            except ValueError:  # test devices are not there unless asked for
                print("no")
        """
    )
    assert out.split() == ["no", "no"]


def test_copies_to_another_device_carry_gradients_home():
    from megengine.autodiff import GradManager

    w = mge.Parameter([1.0, 2.0], device="cpu0")
    outer, inner = GradManager().attach(w), GradManager().attach(w)
    with outer:
        with inner:
            y = F.copy(w * w, "cpu1") * Tensor([3.0, 5.0], device="cpu1")
            assert y.device == "cpu1"
            inner.backward(y.to("cpu0:1").sum())
        first = w.grad
        assert first.device == "cpu0"
        np.testing.assert_array_equal(first.numpy(), [6, 20])
        w.grad = None
        outer.backward((first * first).sum())
    assert w.grad.device == "cpu0"
    np.testing.assert_array_equal(w.grad.numpy(), [72, 400])  # d/dw of (6w)^2 and (10w)^2


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True}])
def test_copies_to_another_device_are_traced(options):
    from megengine.autodiff import GradManager
    from megengine.jit import trace
    from megengine.optimizer import SGD

    a, b = mge.Parameter([2.0]), mge.Parameter([3.0], device="cpu1")
    gm = GradManager().attach([a, b])
    opts = [SGD(p, lr=0.125) for p in (a, b)]

    @trace(**options)
    def step(x):
        with gm:
            loss = ((a * x).to("cpu1") * b).sum()
            gm.backward(loss)
        for o in opts:
            o.step().clear_grad()
        return loss

    want_a, want_b = 2.0, 3.0
    for i in range(4):
        x = float(i + 1)
        loss = step(Tensor([x]))
        assert loss.item() == want_a * x * want_b and loss.device == "cpu1"
        want_a, want_b = want_a - 0.125 * x * want_b, want_b - 0.125 * x * want_a
        assert (a.item(), b.item()) == (want_a, want_b) and (a.device, b.device) == ("xpux", "cpu1")


def test_borrowed_memory_is_not_copied():
    x = Tensor(np.ones(1 << 20, "float32"), device="cpu0")
    mge._full_sync()
    before = mge.get_allocated_memory("cpu0")
    y = x.to("cpu0:1", _borrow=True)
    assert mge.get_allocated_memory("cpu0") == before and y.device == "cpu0:1"
    z = x.to("cpu0:1")
    assert mge.get_allocated_memory("cpu0") >= before + (4 << 20)
    other = x.to("cpu1", _borrow=True)  # another device: a copy all the same
    assert float(y.sum()) == float(z.sum()) == float(other.sum()) == 1 << 20


def test_each_device_counts_its_own_memory_and_keeps_its_own_limit():
    core = mge.core._core
    x = Tensor(np.ones(1000, "float32"), device="cpu3")
    mge.reset_max_memory_stats("cpu3")
    before = {d: mge.get_allocated_memory(d) for d in ("cpu0", "cpu3")}
    y = F.concat([x] * 1000)
    assert mge.get_allocated_memory("cpu3") - before["cpu3"] == 4_000_000
    assert mge.get_allocated_memory("cpu3:5") == mge.get_allocated_memory("cpu3")  # streams share
    assert mge.get_max_allocated_memory("cpu3") >= 4_000_000 and mge.get_allocated_memory("cpu0") == before["cpu0"]
    try:
        core.set_memory_limit(mge.get_allocated_memory("cpu3") + 100_000, "cpu3")
        with pytest.raises(MemoryError) as e:
            y + 1
        text = str(e.value)
        for part in (
            "memory limit of cpu3",
            "4000000 bytes asked",
            "in use in",
            "largest free block",
            "add(float32[1000000]",
        ):
            assert part in text, text
        assert float((x + 1).sum()) == 2000  # life goes on
        F.zeros((1_000_000,), device="cpu0")
    finally:
        core.set_memory_limit(0, "cpu3")
    assert float((y + 1).sum()) == 2_000_000
    del y
    reserved = mge.get_reserved_memory("cpu3")
    mge.coalesce_free_memory()
    assert mge.get_reserved_memory("cpu3") < reserved


def test_a_traced_program_takes_memory_where_its_tensors_are():
    from megengine.jit import trace

    @trace(without_host=True)
    def f(x):
        return F.matmul(x, x) + F.matmul(x * 2, x)

    x = Tensor(np.ones((256, 256), "float32"), device="cpu4")
    f(x)
    before = {d: mge.get_allocated_memory(d) for d in ("cpu0", "cpu4")}
    for d in before:
        mge.reset_max_memory_stats(d)
    y = f(x)
    assert y.device == "cpu4" and y.numpy()[0, 0] == 768
    assert mge.get_max_allocated_memory("cpu0") == before["cpu0"]
    # The result and the intermediates, of which the result is left.
    assert mge.get_max_allocated_memory("cpu4") >= before["cpu4"] + 2 * 256 * 1024
    assert mge.get_allocated_memory("cpu4") == before["cpu4"] + 256 * 1024


def functional_calls():
    def t(*shape):
        return np.random.RandomState(sum(shape)).rand(*shape).astype("float32")

    x, v, img = t(4, 6), t(6), t(2, 4, 6, 6)
    yield "softmax", lambda d: F.softmax(Tensor(x, device=d), axis=1)
    yield "norm", lambda d: F.norm(Tensor(x, device=d), axis=0)
    yield "clip", lambda d: F.clip(Tensor(x, device=d), 0.2, 0.8)
    yield "leaky", lambda d: F.leaky_relu(Tensor(x, device=d), 0.1)
    yield "cumsum", lambda d: F.cumsum(Tensor(x, device=d), axis=0)
    yield "var", lambda d: F.var(Tensor(x, device=d), axis=1)
    yield "index", lambda d: Tensor(x, device=d)[[0, 2], :][:, np.array([1, 3])]
    yield "mask", lambda d: Tensor(x, device=d)[Tensor(x > 0.5, device=d)]
    yield "set", lambda d: (lambda y: (y.__setitem__(([0, 1], [2, 3]), 7.0), y)[1])(Tensor(x, device=d))
    yield "pad", lambda d: F.pad(Tensor(x, device=d), ((1, 2), (0, 1)))
    yield "reflect", lambda d: F.pad(Tensor(x, device=d), ((1, 2),), "reflect")
    yield "diag", lambda d: F.diag(Tensor(v, device=d), 1)
    yield "roll", lambda d: F.roll(Tensor(x, device=d), 1, 0)
    yield "repeat", lambda d: F.repeat(Tensor(x, device=d), 2, axis=0)
    yield "tile", lambda d: F.tile(Tensor(x, device=d), (2, 1))
    yield "one_hot", lambda d: F.one_hot(Tensor([1, 0], device=d), 3)
    yield "gather", lambda d: F.gather(Tensor(x, device=d), 0, Tensor(np.zeros((1, 6), "int32"), device=d))
    yield "cross", lambda d: F.cross(Tensor(t(3), device=d), Tensor(t(2), device=d))
    yield "split", lambda d: F.split(Tensor(x, device=d), 2, axis=1)[1]
    yield "stack", lambda d: F.stack([Tensor(x, device=d)] * 2)
    yield "flip", lambda d: F.vision.flip(Tensor(img, device=d))
    yield "xent", lambda d: F.loss.cross_entropy(Tensor(x, device=d), Tensor([0, 1, 2, 3], device=d))
    yield "bce", lambda d: F.loss.binary_cross_entropy(Tensor(v, device=d), Tensor(v, device=d))
    yield "hinge", lambda d: F.loss.hinge_loss(Tensor(x, device=d), Tensor(np.sign(x - 0.5), device=d))
    yield "sliding", lambda d: F.sliding_window(Tensor(img, device=d), 3)
    yield "lrn", lambda d: F.local_response_norm(Tensor(img, device=d))
    yield "avg", lambda d: F.adaptive_avg_pool2d(Tensor(img, device=d), 2)
    yield "bn", lambda d: F.batch_norm(Tensor(img, device=d), training=True, inplace=False)
    yield "drop", lambda d: F.dropout(Tensor(x, device=d), 0.5) * 0.0
    yield "topk", lambda d: F.topk_accuracy(Tensor(x, device=d), Tensor([0, 1, 2, 3], device=d), 2)
    yield "random", lambda d: mge.random.RNG(seed=3, device=d).normal(size=(5,))


@pytest.mark.parametrize("call", [pytest.param(c, id=n) for n, c in functional_calls()])
def test_functions_stay_on_the_device_of_their_inputs(call):
    y, want = call("cpu1"), call("xpux")
    assert y.device == "cpu1"
    np.testing.assert_array_equal(y.numpy(), want.numpy())


def test_a_model_trains_on_another_device():
    import megengine.module as M
    from megengine.autodiff import GradManager
    from megengine.optimizer import SGD, Adam

    def train(device, opt_class):
        mge.random.seed(11)
        mge.set_default_device("xpux")
        net = M.Sequential(M.Conv2d(1, 4, 3), M.BatchNorm2d(4), M.ReLU(), M.AdaptiveAvgPool2d(2))
        head = M.Linear(16, 3)
        params = [*net.parameters(), *head.parameters()]
        for p in (*params, *net.buffers()):
            p._reset(p.to(device))
        opt = opt_class(params, lr=0.01)
        gm = GradManager().attach(params)
        rng = np.random.RandomState(5)
        for _ in range(3):
            x = Tensor(rng.rand(4, 1, 8, 8).astype("float32"), device=device)
            with gm:
                loss = F.loss.cross_entropy(
                    head(F.flatten(net(x), 1)), Tensor(rng.randint(0, 3, 4).astype("int32"), device=device)
                )
                gm.backward(loss)
            opt.step().clear_grad()
        assert loss.device == device and all(p.device == device for p in params)
        return loss.numpy().tobytes()

    for opt_class in (SGD, Adam):
        assert train("cpu1", opt_class) == train("xpux", opt_class)


@pytest.mark.parametrize("traced", [False, True])
def test_one_optimizer_for_parameters_on_two_devices(traced):
    from megengine.autodiff import GradManager
    from megengine.jit import trace
    from megengine.optimizer import SGD, Adam, clip_grad_norm

    def train(second, opt_class):
        a, b = mge.Parameter([2.0, 1.0]), mge.Parameter([3.0], device=second)
        gm, opt = GradManager().attach([a, b]), opt_class([a, b], lr=0.5)

        def step(x):
            with gm:
                loss = (F.exp(a * x).to(second) * b).sum()
                gm.backward(loss)
            norm = clip_grad_norm([a, b], 1.0)
            opt.step().clear_grad()
            return loss, norm

        run_step = trace(step) if traced else step
        seen = [tuple(float(v) for v in run_step(Tensor([0.1 * i, -0.1]))) for i in range(4)]
        opt.param_groups[0]["lr"] = 0.25
        seen.append(tuple(float(v) for v in run_step(Tensor([0.3, -0.1]))))
        assert a.device == "xpux" and b.device == second
        return seen, a.tolist(), b.tolist()

    for opt_class in (SGD, Adam):
        assert train("cpu1", opt_class) == train("xpux", opt_class)


def test_memory_counters():
    mge._full_sync()
    mge.reset_max_memory_stats()
    before = mge.get_allocated_memory()
    x = Tensor(np.zeros(1 << 20, "float32"))
    mge._full_sync()
    assert mge.get_allocated_memory() - before >= 4 << 20
    assert mge.get_max_allocated_memory() >= mge.get_allocated_memory()
    assert mge.get_reserved_memory() >= mge.get_allocated_memory()
    del x
    assert mge.get_allocated_memory() <= before + 4096
    peak = mge.get_max_allocated_memory()
    mge.reset_max_memory_stats()
    assert mge.get_max_allocated_memory() < peak
    mge.coalesce_free_memory()
    total, free = mge.get_mem_status_bytes()
    assert total > free > 0


def test_peak_of_a_small_tensor():
    mge._full_sync()
    mge.reset_max_memory_stats()
    before = mge.get_max_allocated_memory()
    x = F.zeros((1024,))
    mge._full_sync()
    assert 4096 <= mge.get_max_allocated_memory() - before <= 4224
    del x


def test_cuda_queries_without_cuda():
    if mge.is_cuda_available():
        pytest.skip("a GPU is present")
    assert [f() for f in (mge.get_cuda_version, mge.get_cudnn_version, mge.get_tensorrt_version)] == [-1, -1, -1]
    assert mge.get_cuda_driver_version() == -1
    with pytest.raises(ValueError, match="there is no gpu device"):
        mge.get_cuda_compute_capability(0)
    mge.set_prealloc_config(device_type=DeviceType.CUDA)
    with pytest.raises(AssertionError):
        mge.set_prealloc_config(alignment=0)


def test_exit_handlers_run_in_reverse_order():
    out = run(
        """
        import megengine as mge
        mge._atexit(lambda: print("first"))
        mge._atexit(lambda: print("second"))
        x = mge.tensor([1.0]) + 1
        mge._exit(0)
        """
    )
    assert out.split() == ["second", "first"]


def test_import_is_light():
    """Without numpy, which every array program pays for anyway: few modules, little memory, little time."""
    out = run(
        """
        import resource, sys, time
        import numpy
        a, t = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        import megengine
        print(time.process_time() - t, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - a) / 1024)
        heavy = ["asyncio", "multiprocessing", "dataclasses", "tempfile", "urllib", "socket"]
        heavy += ["megengine.core._imperative_rt.ops", "megengine.core._imperative_rt.core2"]  # 128 classes
        print([m for m in heavy if m in sys.modules])
        """
    )
    numbers, heavy = out.splitlines()
    seconds, megabytes = map(float, numbers.split())
    assert heavy == "[]"
    assert megabytes < 30 and seconds < 1.0  # generous: without .pyc files and on a busy machine


def test_version():
    assert mge.__version__ == "1.14.0"
    import megengine.version as version

    assert version.git_version


def test_devices_compare_with_names() -> None:
    assert tensor([1]).device == "xpux" and str(tensor([1], device="cpu0:1").device) == "cpu0:1"


def test_devices_are_not_mixed() -> None:
    a, b = tensor([1.0], device="cpu0"), tensor([1.0], device="cpu0:1")
    for fn in (F.concat, F.stack):
        with pytest.raises((ValueError, RuntimeError)):
            fn([a, b])
        assert fn([a, b], device="cpu0:1").device == "cpu0:1"


def test_memory_statistics_of_one_tensor() -> None:
    mge._full_sync()
    mge.coalesce_free_memory()
    mge.reset_max_memory_stats()
    before = mge.get_max_allocated_memory()
    x = F.arange(1024)
    mge._full_sync()
    assert 4096 <= mge.get_max_allocated_memory() - before <= 8192 and x.shape == (1024,)
