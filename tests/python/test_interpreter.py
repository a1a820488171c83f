"""Beside other threads and signals: long work lets go of the interpreter, Ctrl-C is heard, traces are shared."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace


def python(code: str, timeout: float = 120, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# ---- the interpreter lock


def heartbeats(work: Callable[[], object]) -> int:
    """How often another thread came to run while ``work`` ran."""
    beats, stop = [0], threading.Event()
    started = threading.Event()

    def beat() -> None:
        started.set()
        while not stop.is_set():
            beats[0] += 1
            time.sleep(0.0005)

    # A thread that holds the lock is asked for it after this long, at a bytecode: never, as far as this test goes.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    thread = threading.Thread(target=beat)
    thread.start()
    started.wait()
    before = beats[0]
    try:
        work()
        return beats[0] - before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


big = np.random.default_rng(0).standard_normal((900, 900)).astype("float32")


def _matmul() -> Callable[[], object]:
    x = Tensor(big)
    return lambda: F.matmul(x, x)


def _elementwise() -> Callable[[], object]:
    x = Tensor(np.tile(big, (8, 1)))
    return lambda: F.sin(x)


def _backward() -> Callable[[], object]:
    x = Tensor(big)
    gm = GradManager().attach([x])
    gm.record()
    y = F.matmul(F.matmul(x, x), x).sum()
    return lambda: (gm.backward(y), x)  # which is held weakly


def _replay() -> Callable[[], object]:
    @trace(without_host=True)
    def f(x: Tensor) -> Tensor:
        return F.matmul(F.matmul(x, x), x)

    x = Tensor(big)
    f(x), f(x)
    return lambda: f(x)


def _segment() -> Callable[[], object]:
    @trace
    def f(x: Tensor) -> Tensor:
        return F.matmul(F.matmul(x, x), x)

    x = Tensor(big)
    f(x), f(x)
    return lambda: f(x)


def _update() -> Callable[[], object]:
    w = mge.Parameter(np.tile(big, (8, 1)))
    opt = mge.optimizer.Adam([w], lr=0.1)
    w.grad = Tensor(np.tile(big, (8, 1)))
    return lambda: opt.step()


@pytest.mark.parametrize("make", [_matmul, _elementwise, _backward, _replay, _segment, _update])
def test_long_work_lets_other_threads_run(make: Callable[[], Callable[[], object]]) -> None:
    beats = 0
    for _ in range(100):  # a busy machine lets the other thread run when it likes
        beats += heartbeats(make())
        if beats >= 2:
            break
    assert beats >= 2


def test_values_that_a_kernel_reads_stay_when_another_thread_assigns() -> None:
    """The tensors of a running op get other values, whose old memory would be reused at once."""
    a, b = Tensor(big), Tensor(big)
    want = big @ big
    stop = threading.Event()

    def assign() -> None:
        while not stop.is_set():
            for t in (a, b):
                t._reset(Tensor(big))
                F.zeros((900, 900))

    thread = threading.Thread(target=assign)
    thread.start()
    try:
        for _ in range(30):
            np.testing.assert_allclose(F.matmul(a, b).numpy(), want, rtol=1e-3, atol=1e-2)
    finally:
        stop.set()
        thread.join()


def test_threads_that_train_one_set_of_parameters_wait_for_each_other() -> None:
    w = mge.Parameter(np.zeros(200_000, "float32"))
    one = Tensor(np.ones(200_000, "float32"))

    def add() -> None:
        for _ in range(25):
            w.__iadd__(one) if False else mge.core._core.ops.add.update((w,), w, one)

    threads = [threading.Thread(target=add) for _ in range(8)]
    begun = time.monotonic()
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert (w.numpy() == 200.0).all()
    assert time.monotonic() - begun < 20


# ---- traces

MODES: dict[str, dict[str, Any]] = {"host": {}, "without_host": {"without_host": True}}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [4, 300])
def test_a_traced_function_is_called_from_eight_threads(mode: str, size: int) -> None:
    """Recorded by all of them at once, each with shapes and constants that others use too; results as without trace."""
    weight = mge.Parameter(np.random.default_rng(1).standard_normal((size, size)).astype("float32"))

    def body(x: Tensor, k: int) -> Tensor:
        y = F.relu(F.matmul(x, weight)) * k
        return (y + x).sum(axis=1)

    inputs = [np.random.default_rng(n).standard_normal((n, size)).astype("float32") for n in (1, 2, 3)]
    want = {(n, k): body(Tensor(x), k).numpy().tobytes() for n, x in enumerate(inputs) for k in (1, 2)}
    wrong: list[object] = []
    ready = threading.Barrier(8)

    def work(t: int) -> None:
        ready.wait()
        try:
            for i in range(12):
                n, k = (t + i) % 3, 1 + (t + i) % 2
                if f(Tensor(inputs[n]), k).numpy().tobytes() != want[n, k]:
                    wrong.append((t, i))
        except BaseException as e:
            wrong.append(e)

    for _ in range(20):  # the first calls, with recordings that others are in the middle of, are the interesting ones
        f = trace(body, **MODES[mode])
        threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not wrong, wrong[:3]


@pytest.mark.parametrize("mode", MODES)
def test_eight_threads_train_by_one_traced_function_each_its_own_net(mode: str) -> None:
    x = Tensor(np.random.default_rng(2).standard_normal((16, 8)).astype("float32"))

    def train(step: Callable[[Callable[..., Any]], Callable[..., Any]]) -> list[float]:
        mge.random.seed(0)
        net = M.Linear(8, 4)
        M.init.fill_(net.weight, 0.1)
        gm, opt = GradManager().attach(net.parameters()), mge.optimizer.SGD(net.parameters(), lr=0.01)

        @step
        def one(x: Tensor) -> Tensor:
            with gm:
                loss = (net(x) ** 2).sum()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        return [float(one(x).numpy()) for _ in range(8)]

    want = train(lambda f: f)
    got: list[object] = []

    def work() -> None:
        try:
            got.append(train(lambda f: trace(f, **MODES[mode])))
        except BaseException as e:
            got.append(e)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert got == [want] * 8


# ---- Ctrl-C

CTRL_C = """
import os, signal, threading, time
import numpy as np
import megengine as mge, megengine.functional as F
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace

x = mge.Tensor(np.eye(600, dtype="float32"))
def interrupt_after(seconds):
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
def chain(x, n):
    for _ in range(n):
        x = F.matmul(x, x)
    return x
def timed(work, seconds=0.3):
    interrupt_after(seconds)
    begun = time.process_time()  # what others do to the machine does not count
    try:
        work()
        print("was not interrupted")
    except KeyboardInterrupt:
        print("interrupted", time.process_time() - begun)
"""


def interrupted(work: str, after: str = "") -> float:
    """Seconds of computing until Ctrl-C, sent after 0.3, ended ``work``; the process is fine afterwards."""
    says = python(CTRL_C + textwrap.dedent(work) + textwrap.dedent(after) + "\nassert (x + x).numpy()[0, 0] == 2\n")
    words = says.split()
    assert words[0] == "interrupted", says
    return float(words[1])


def test_ctrl_c_ends_a_long_loop_of_ops() -> None:
    assert interrupted("timed(lambda: chain(x, 100000))") < 3


@pytest.mark.parametrize("mode", MODES)
def test_ctrl_c_ends_a_long_replay(mode: str) -> None:
    """A program that runs for many seconds; afterwards it runs again, and nothing of it looks pending."""
    seconds = interrupted(
        f"""
        n = 10
        probe = time.process_time()
        chain(x, n)
        n = int(30 * n / (time.process_time() - probe))  # half a minute of it
        n = min(n, 20000)
        total = mge.Tensor([0.0])
        f = trace(chain, **{MODES[mode]!r})
        small = mge.Tensor(np.eye(2, dtype="float32"))
        f(small, n), f(small, n)
        timed(lambda: f(x, n))
        """,
        "assert (f(small, n).numpy() == np.eye(2)).all()\n",
    )
    assert seconds < 8


def test_ctrl_c_ends_a_long_backward() -> None:
    seconds = interrupted(
        """
        begun = time.process_time()
        gm = GradManager().attach([x])
        gm.record()
        n, y = 0, x
        while time.process_time() - begun < 3:
            y, n = F.matmul(y, x), n + 1
        y = y.sum()
        timed(lambda: gm.backward(y))
        gm.release()
        """
    )
    assert seconds < 2.5


def test_ctrl_c_ends_a_wait() -> None:
    seconds = interrupted(
        """
        _core.set_option("executor", 1)
        def long():
            y = x
            for _ in range(2000):
                y = F.matmul(y, x)
            y.numpy()
        timed(long)
        os._exit(0)
        """
    )
    assert seconds < 3


# ---- modules


def test_importing_again_after_removing_the_modules() -> None:
    says = python(
        """
        import sys
        import numpy as np
        import megengine as mge, megenginelite
        old = mge.Tensor([1.0, 2.0])
        for name in [n for n in sys.modules if n.split(".")[0] in ("megengine", "megenginelite")]:
            del sys.modules[name]
        import megengine as again, megenginelite
        import megengine.functional as F, megengine.module as M
        assert again is not mge and again.Tensor is not mge.Tensor
        x = again.Tensor([3.0, 4.0])
        assert isinstance(x + 1, again.Tensor) and (x + x).numpy().tolist() == [6.0, 8.0]
        assert (x + old).numpy().tolist() == [4.0, 6.0]
        net, gm = M.Linear(2, 2), again.autodiff.GradManager()
        gm.attach(net.parameters())
        with gm:
            gm.backward(net(F.expand_dims(x, 0)).sum())
        assert net.weight.grad.shape == (2, 2)
        @again.jit.trace(without_host=True)
        def f(x):
            return x * 2
        assert [f(x).numpy().tolist() for _ in range(3)] == [[6.0, 8.0]] * 3
        print("works")
        """
    )
    assert says.strip() == "works"


def test_the_extension_itself_says_why_it_is_not_loaded_twice() -> None:
    says = python(
        """
        import sys
        import megengine
        for name in [n for n in sys.modules if "megengine" in n]:
            del sys.modules[name]
        try:
            import megengine
        except ImportError as e:
            print(e)
        """
    )
    assert "was loaded before in this process" in says and "Start a new process" in says


def test_an_installed_copy_finds_its_libraries(tmp_path: Path) -> None:
    """As ``pip install --target`` leaves it: a folder anywhere, with nothing of the build beside it."""
    root = Path(__file__).resolve().parent.parent.parent
    target = tmp_path / "target"
    subprocess.run(
        ["cmake", "--install", str(root / "build" / "dev"), "--prefix", str(target)], check=True, capture_output=True
    )
    subprocess.run([sys.executable, str(root / "tools" / "stage_python.py"), str(target)], check=True)
    says = python(
        """
        import pathlib
        import megengine as mge, megenginelite
        assert (mge.Tensor([1.0]) + 1).item() == 2
        maps = pathlib.Path("/proc/self/maps").read_text()
        found = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/")}
        for name in ("_core.", "liblite", "libdnnl", "libhwy"):
            print(*sorted(p for p in found if pathlib.Path(p).name.startswith(name)))
        """,
        PYTHONPATH=str(target),
        LD_LIBRARY_PATH="",
    )
    for line in says.splitlines():
        assert line and all(p.startswith(str(target)) for p in line.split()), says
