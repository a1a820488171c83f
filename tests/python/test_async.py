"""Queued execution on a fake device that delays and fails on demand: no error lost, each with its line."""

from __future__ import annotations

import inspect
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import Function, GradManager
from megengine.core import _core
from megengine.core._core import AsyncError
from megengine.optimizer import SGD, Adam

FAKE = "fake0"
LONG = 60_000_000  # microseconds of a pause that a test ends by another call of test_device


@pytest.fixture(autouse=True)
def fresh_device() -> Iterator[None]:
    _core.test_device()
    yield
    _core.test_device()
    _core.set_option("executor", 0)
    _core.set_memory_limit(0, FAKE)
    _core.sync()  # a test that leaves an error behind fails here


@pytest.fixture
def queued() -> Iterator[None]:
    _core.set_option("executor", 1)
    yield


def on_fake(value: object) -> Tensor:
    return Tensor(np.asarray(value, dtype=np.float32), device=FAKE)


def here() -> int:
    """The caller's line."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def python(code: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=timeout
    )


# ---- the device


def test_ops_are_queued_and_come_out_right() -> None:
    _core.test_device(delay_us=LONG)
    x = on_fake([1, 2, 3])
    y = x * 2
    for _ in range(4):
        y = y + 1
    assert _core.test_device_ops() <= 1  # the first may have begun
    _core.test_device()
    np.testing.assert_array_equal(y.numpy(), [6, 8, 10])
    assert 4 <= _core.test_device_ops() <= 5
    assert y.device == FAKE and y.shape == (3,)


def test_copies_from_and_to_the_device() -> None:
    _core.test_device(delay_us=5_000)
    w = mge.Parameter([1.0, 2.0])
    gm = GradManager().attach(w)
    with gm:
        y = (w.to(FAKE) * on_fake([3, 4])).to("cpu0")
        gm.backward(y.sum())
    assert y.device == "cpu0" and w.grad is not None and w.grad.device == "xpux"
    np.testing.assert_array_equal(w.grad.numpy(), [3, 4])


def test_its_memory_is_its_own_and_limited() -> None:
    x = on_fake(np.ones(1000))
    _core.sync()
    _core.set_memory_limit(mge.get_allocated_memory(FAKE) + 6000, FAKE)
    y = F.concat([x, x])  # 8000 bytes
    z = x + 1  # 4000
    with pytest.raises(AsyncError, match="memory limit of fake0"):
        y.numpy()
    assert z.numpy().sum() == 2000


# ---- errors

FAULTS = {"kernel": "injected fault on fake0", "memory": "out of memory on fake0"}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_fault_fails_its_op_and_what_depends_on_it_and_nothing_else(fault: str, nth: int) -> None:
    _core.test_device(delay_us=1000, fail_at=nth, fault=fault)
    x = on_fake(np.ones((2, 3)))
    a = x + 1
    b = x * 2
    c = F.exp(x)
    ran_before = _core.test_device_ops()
    bad, good = [a, b, c][nth - 1], [v for i, v in enumerate([a, b, c]) if i != nth - 1]
    d = bad - 1
    e = d.sum()
    with pytest.raises(AsyncError, match=FAULTS[fault]) as info:
        e.numpy()
    op = ["add", "mul", "exp"][nth - 1]
    text = str(info.value)
    assert f"{op}(float32[2,3]" in text and isinstance(info.value.__cause__, RuntimeError)
    for v in good:  # an op that finds no memory fails before those enqueued earlier have begun
        v.numpy()
    assert ran_before <= 3 and _core.test_device_ops() == 3, "dependants must not run"
    for t in (bad, d, e):
        with pytest.raises(AsyncError, match=FAULTS[fault]):
            t.numpy()
    for t in good:
        assert np.isfinite(t.numpy()).all()
    later = (x + 5) * 2
    np.testing.assert_array_equal(later.numpy(), np.full((2, 3), 12))
    _core.sync()  # seen already


def test_sync_tells_once_of_an_error_nobody_read() -> None:
    _core.test_device(fail_at=2)
    x = on_fake([1.0])
    x + 1
    line = here() + 1
    x * 3
    F.exp(x)
    with pytest.raises(AsyncError, match=rf"injected fault[\s\S]*test_async.py:{line} in test_sync_tells"):
        mge._full_sync()
    mge._full_sync()
    assert (x + 1).item() == 2


def test_sync_counts_what_it_does_not_print() -> None:
    _core.test_device(fault="lost", fail_at=1)
    x = on_fake([1.0])
    for _ in range(1200):
        x + 1
    with pytest.raises(AsyncError, match=r"\(1199 more failed ops nobody read\)"):
        mge._full_sync()
    mge._full_sync()


def test_a_lost_device_stays_lost_and_the_others_go_on() -> None:
    _core.test_device(fault="lost", fail_at=1)
    x, other, cpu = on_fake([1.0]), Tensor([1.0], device="fake1"), Tensor([1.0])
    for _ in range(3):
        with pytest.raises(AsyncError, match="device fake0 is lost"):
            (x + 1).numpy()
    assert (other + 1).item() == 2 and (cpu + 1).item() == 2


def test_an_error_survives_the_change_of_executor(queued: None) -> None:
    x = Tensor(np.zeros((2, 3), np.float32))
    F.gather(x, 0, Tensor(np.full((1, 3), 7, np.int32)))
    _core.set_option("executor", 0)
    with pytest.raises(AsyncError, match="out of range"):
        mge._full_sync()


def test_reading_from_several_threads_tells_each() -> None:
    _core.test_device(delay_us=20_000, fail_at=1)
    y = on_fake([1.0]) + 1
    texts: list[str] = []

    def read() -> None:
        try:
            y.numpy()
        except AsyncError as e:
            texts.append(str(e))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(texts) == 4 and all("injected fault" in t for t in texts)


# ---- the user's line

X = np.ones((2, 3), np.float32)


def functional(x: Tensor) -> Tensor:
    return F.softmax(x, axis=1)  # culprit


def method(x: Tensor) -> Tensor:
    return x.reshape(3, 2).astype("float16")  # culprit


def operator(x: Tensor) -> Tensor:
    y = x
    return (y
            + 1)  # culprit+0  # fmt: skip


def indexing(x: Tensor) -> Tensor:
    return x[1:, ::2]  # culprit


def set_item(x: Tensor) -> Tensor:
    y = x.detach()
    y[0] = 3.0  # culprit
    return y


def module(x: Tensor) -> Tensor:
    _core.test_device()
    linear = M.Linear(3, 4)
    for p in linear.parameters():
        p._reset(p.to(FAKE))
    _core.sync()
    _core.test_device(fail_at=1)
    return linear(x)  # culprit


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = M.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)  # culprit


def user_module(x: Tensor) -> Tensor:
    return Net()(x)


def nested(x: Tensor) -> Tensor:
    return [functional(v) for v in (x,)][0]  # the culprit is inside functional


def in_place(x: Tensor) -> Tensor:
    y = x.detach()
    y += 1  # culprit
    return y


@pytest.mark.parametrize(
    "program, culprit",
    [(f, f) for f in (functional, method, operator, indexing, set_item, module, in_place)]
    + [(user_module, Net.forward), (nested, functional)],
)
def test_errors_name_the_line(program: Callable[[Tensor], Tensor], culprit: Callable[..., Tensor]) -> None:
    lines, first = inspect.getsourcelines(culprit)
    want = first + next(i for i, text in enumerate(lines) if "# culprit" in text)
    x = on_fake(X)
    _core.test_device(fail_at=1)
    y = program(x)
    with pytest.raises(AsyncError) as e:
        y.numpy()
    place = re.search(r"at (.*):(\d+) in (\w+(?:\.\w+)*)", str(e.value))
    assert place is not None, str(e.value)
    assert place[1] == __file__ and place[3] == culprit.__qualname__
    assert int(place[2]) in ((want, want - 1) if program is operator else (want,)), str(e.value)
    _core.test_device()
    _core.sync()


def train_step(before_backward: Callable[[], None]) -> Tensor:
    _core.test_device()
    w = mge.Parameter(np.ones(1000, np.float32))
    w._reset(w.to(DEVICE[0]))
    gm = GradManager().attach(w)
    with gm:
        y = F.exp(w)  # the line of exp
        loss = y.sum()  # the line of sum
        mge._full_sync()
        before_backward()
        gm.backward(loss)
        assert w.grad is not None
    return w.grad


DEVICE = ["cpu0"]


def line_of(mark: str) -> int:
    lines, first = inspect.getsourcelines(train_step)
    return first + next(i for i, text in enumerate(lines) if mark in text)


def test_errors_in_backward_name_the_forward_line() -> None:
    exp, total = line_of("# the line of exp"), line_of("# the line of sum")
    told = set()
    DEVICE[0] = FAKE
    try:
        for nth in range(2, 8):  # the first op fills the gradient of the loss with 1
            grad = train_step(lambda nth=nth: _core.test_device(fail_at=nth))
            try:
                grad.numpy()
            except AsyncError as e:
                place = re.search(rf"in (\w+)\(.*\n  at {__file__}:(\d+) in train_step \(backward\)", str(e))
                assert place is not None, str(e)
                told.add((place[1], int(place[2])))
    finally:
        DEVICE[0] = "cpu0"
    assert ("mul", exp) in told and any(line == total for _, line in told), told

    def little_memory() -> None:
        _core.set_memory_limit(_core.memory_stats()["allocated"] + 1000)

    try:  # inline: raised by the line that calls backward, and says which forward op it was about
        with pytest.raises(MemoryError, match=rf"in mul[\s\S]*test_async.py:{exp} in train_step \(backward\)"):
            train_step(little_memory)
    finally:
        _core.set_memory_limit(0)


@pytest.mark.parametrize("opt_class", [SGD, Adam])
def test_errors_in_an_optimizer_step_name_its_line(opt_class: type[SGD] | type[Adam]) -> None:
    w = mge.Parameter(X)
    w._reset(w.to(FAKE))
    opt = opt_class([w], lr=0.1)
    w.grad = on_fake(X)
    opt.step()
    _core.sync()
    _core.test_device(fail_at=1)
    line = here() + 1
    opt.step()
    with pytest.raises(AsyncError, match=rf"test_async.py:{line} in test_errors_in_an_optimizer"):
        w.numpy()
    w[...] = on_fake(X)  # a parameter that failed can be given a value again
    np.testing.assert_array_equal(w.numpy(), X)


# ---- errors that only data can show


@pytest.mark.parametrize(
    "says, call",
    [
        ("take: index 5", lambda x, bad: x[bad]),
        ("gather: index 5", lambda x, bad: F.gather(x, 1, bad)),  # 5 is a position in the flattened tensor
        ("one_hot: index 5", lambda x, bad: F.one_hot(bad, 4)),
        ("indexing_one_hot: index 5", lambda x, bad: F.indexing_one_hot(F.stack([x, x, x]), bad, 0)),
        ("label 5", lambda x, bad: F.loss.cross_entropy(F.stack([x, x, x], axis=1), bad)),
    ],
)
def test_bad_indices_surface_when_read_and_at_once_when_inline(
    says: str, call: Callable[[Tensor, Tensor], Tensor]
) -> None:
    x = Tensor(np.zeros((3, 4), np.float32))
    bad = Tensor(np.array([[1, 5, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], np.int32))
    with pytest.raises(IndexError, match=says):
        call(x, bad)
    _core.set_option("executor", 1)
    y, line = call(x, bad), here()
    good = call(x, bad * 0)
    with pytest.raises(AsyncError, match=says):
        y.numpy()
    assert np.isfinite(good.numpy()).all() and line
    _core.set_option("async_level", 0)
    try:
        with pytest.raises(AsyncError, match=says):
            call(x, bad)
    finally:
        _core.set_option("async_level", 2)


def test_a_failed_set_item_leaves_a_failed_tensor(queued: None) -> None:
    x = Tensor(np.zeros((3, 4), np.float32))
    keep = x + 0
    index = Tensor(np.array([9], np.int32))
    try:
        x[index] = 1.0
    except (IndexError, RuntimeError):
        np.testing.assert_array_equal(x.numpy(), np.zeros((3, 4)))  # refused at the call: nothing happened
    else:
        with pytest.raises(AsyncError, match="9"):
            x.numpy()
    x[...] = keep
    assert x.numpy().sum() == 0


# ---- exceptions from the user's own code


@pytest.mark.parametrize("executor", [0, 1])
def test_an_exception_in_a_gradient_callback_comes_out_and_leaves_no_trace(executor: int) -> None:
    _core.set_option("executor", executor)
    w = mge.Parameter([2.0])
    angry = True

    def callback(_: Tensor, g: Tensor) -> Tensor:
        if angry:
            raise KeyError("from the callback")
        return g * 10

    gm = GradManager().attach(w, callbacks=callback)
    for _ in range(2):
        with pytest.raises(KeyError, match="from the callback"), gm:
            gm.backward((w * w).sum())
    angry = False
    w.grad = None
    with gm:
        gm.backward((w * w).sum())
    assert w.grad is not None and w.grad.item() == 40


def test_an_exception_in_a_custom_backward_comes_out() -> None:
    class Bad(Function):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

        def backward(self, dy: Tensor) -> Tensor:
            raise ZeroDivisionError("no gradient today")

    w = mge.Parameter([2.0])
    gm = GradManager().attach(w)
    with pytest.raises(ZeroDivisionError, match="no gradient today"), gm:
        gm.backward(Bad()(w).sum())
    with gm:
        gm.backward((w * 3).sum())
    assert w.grad is not None and w.grad.item() == 3


# ---- waiting, interrupts, threads, exit (fork: test_fork.py)


@pytest.mark.parametrize("wait", [lambda y: y.numpy(), lambda y: mge._full_sync(), lambda y: y.to("cpu0")])
def test_ctrl_c_ends_a_long_wait(wait: Callable[[Tensor], object]) -> None:
    _core.test_device(delay_us=LONG)
    y = on_fake([1.0]) + 1
    main = threading.main_thread().ident
    assert main is not None
    sent: list[float] = []

    def interrupt() -> None:
        time.sleep(0.3)
        sent.append(time.perf_counter())
        signal.pthread_kill(main, signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    try:
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            wait(y)
        took = time.perf_counter() - sent[0]
    finally:
        signal.signal(signal.SIGINT, before)
    sender.join()
    assert took < 30, took  # the device itself needs half a minute more
    _core.test_device()
    assert y.item() == 2  # nothing was lost


def test_other_threads_run_while_one_waits() -> None:
    _core.test_device(delay_us=LONG)
    y = on_fake([1.0]) + 1
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        for _ in range(20):
            ticks += 1
            time.sleep(0.005)
        _core.test_device()  # which ends the pause

    t = threading.Thread(target=tick)
    t.start()
    y.numpy()
    assert ticks == 20
    t.join()


@pytest.mark.parametrize("executor", [0, 1])
def test_each_thread_trains_on_its_own(executor: int) -> None:
    """Threads share parameters' values, not recordings: each GradManager sees the ops of its own thread."""
    _core.set_option("executor", executor)
    shared = mge.Parameter(np.array([3.0], np.float32))
    results: dict[int, list[float]] = {}
    start = threading.Barrier(4)

    def train(k: int) -> None:
        mine = mge.Parameter(np.array([float(k)], np.float32))
        gm = GradManager().attach(mine)
        out = []
        start.wait()
        for i in range(40):
            with gm:
                loss = mine * mine * (i + 1)
                for _ in range(3):
                    loss = loss + shared * 0
                gm.backward(loss.sum())
            assert mine.grad is not None
            out.append(mine.grad.item())
            mine.grad = None
        results[k] = out

    threads = [threading.Thread(target=train, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {k: [2.0 * k * (i + 1) for i in range(40)] for k in range(4)}


def test_threads_may_attach_the_same_parameter() -> None:
    shared = mge.Parameter(np.array([3.0], np.float32))
    got: dict[int, float] = {}
    start = threading.Barrier(3)

    def train(k: int) -> None:
        grads: list[float] = []
        gm = GradManager().attach(shared, callbacks=lambda _, g: grads.append(g.item()) or g)
        start.wait()
        for _ in range(30):
            with gm:
                y = shared * float(k + 1)
                time.sleep(0)  # let the others in
                gm.backward(y.sum())
        assert len(grads) == 30
        got[k] = max(abs(g - (k + 1)) for g in grads)

    threads = [threading.Thread(target=train, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == {0: 0.0, 1: 0.0, 2: 0.0}


def test_a_trace_records_its_own_thread_only() -> None:
    from megengine.jit import trace

    inside, finished = threading.Event(), threading.Event()
    other: list[float] = []

    def elsewhere() -> None:
        inside.wait()
        x = Tensor([1.0])
        for _ in range(50):
            x = x + 1
        other.append(x.item())
        finished.set()

    @trace(symbolic=True)
    def step(x: Tensor) -> Tensor:
        y = x * 2
        inside.set()
        finished.wait(10)
        return y + 1

    t = threading.Thread(target=elsewhere)
    t.start()
    for i in range(4):
        assert step(Tensor([float(i)])).item() == 2 * i + 1
    t.join()
    assert other == [51.0]


def test_exit_with_work_pending_finishes_it_and_prints_an_unread_error() -> None:
    done = python("""
        import numpy as np
        import megengine as mge
        from megengine.core import _core
        _core.test_device(delay_us=2000, fail_at=7)
        x = mge.Tensor(np.ones(4, "float32"), device="fake0")
        keep = [x + i for i in range(50)]
        print("end")
    """)
    assert done.returncode == 0 and done.stdout.strip() == "end", done.stderr
    assert "an error that nobody read" in done.stderr and "injected fault" in done.stderr, done.stderr


# ---- shape arithmetic


def test_small_integers_never_wait_for_the_queue(queued: None) -> None:
    _core.test_device(delay_us=LONG)
    slow = on_fake([1.0]) + 1  # a minute of work before anything that is queued now
    start = time.perf_counter()
    for device in (None, FAKE):
        n = Tensor([4, 6], device=device)
        half = n // 2
        assert half.numpy().tolist() == [2, 3]
        total = (half * Tensor(np.array([1, 2], np.int32), device=device)).sum()
        assert int(total) == 8 and int(n[1]) == 6
        both = F.concat([n, half])
        assert both.tolist() == [4, 6, 2, 3] and bool((both > 3).numpy()[0])
        y = F.reshape(Tensor(np.zeros((4, 6), np.float32), device=device), half * 2)
        assert y.shape == (4, 6)
    with pytest.raises(RuntimeError, match="reshape"):  # a wrong shape is told at the call
        F.reshape(Tensor(np.zeros((4, 6), np.float32)), Tensor([5, 5]))
    assert time.perf_counter() - start < 30
    _core.test_device()
    assert slow.item() == 2
