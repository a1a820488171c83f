"""Processes forked from one that computes: they compute too, and nothing hangs."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

FORKED = """
    import os, signal, sys, threading
    import numpy as np
    import megengine as mge, megengine.functional as F
    from megengine.autodiff import GradManager
    from megengine.core import _core
    _core.set_option("executor", {executor})
    threads = {threads}
    mge.device.set_num_threads(threads)

    def child(body):
        \"\"\"Exit status of a forked child that runs the body.\"\"\"
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            signal.alarm(30)  # one that hangs must not stay behind
            try:
                body()
                code = 0
            except BaseException as e:
                print(type(e).__name__, e, flush=True)
            os._exit(code)
        return os.waitpid(pid, 0)[1]

    rng = np.random.RandomState(0)
    x = mge.Tensor(rng.randn(300, 300).astype("float32"))
    image = mge.Tensor(rng.randn(8, 16, 32, 32).astype("float32"))
    weight = mge.Tensor(rng.randn(32, 16, 3, 3).astype("float32"))

    def work():
        \"\"\"Products, convolutions and their gradients, rows and sums: teams of oneDNN and of our own kernels.\"\"\"
        with GradManager().attach([x, weight]) as gm:
            y = F.relu(F.conv2d(image, weight, padding=1))
            gm.backward(F.softmax(x @ x).max() + y.mean() + F.exp(x * 0.1).sum())
        found = [x.grad.numpy().tobytes(), weight.grad.numpy().tobytes()]
        x.grad = weight.grad = None
        return found
"""


def forked(code: str, executor: int, threads: int) -> str:
    """What the program says; one that hangs or fails is an error."""
    code = textwrap.dedent(FORKED.format(executor=executor, threads=threads)) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("executor", [0, 1], ids=["inline", "queued"])
def test_a_forked_child_computes(executor: int, threads: int) -> None:
    """In both processes, with the same bits, while work is queued, again and again, also in a child of a child."""
    says = forked(
        """
        want = work()

        def check():
            assert mge.device.get_num_threads() == threads
            for _ in range(2):
                assert work() == want
            _core.sync()

        for i in range(6):
            busy = x
            for _ in range(50):
                busy = busy @ x * 0.01
            assert child(check) == 0
            assert np.isfinite(busy.numpy()).all()
            assert work() == want
        assert child(lambda: (check(), child(check) == 0 or 1 / 0)) == 0
        print("done")
        """,
        executor,
        threads,
    )
    assert says.split() == ["done"]


def test_values_a_forked_child_has_and_has_not() -> None:
    says = forked(
        """
        _core.test_device(delay_us=60_000_000)
        ready = x + 1
        ready.numpy()
        slow = mge.Tensor(np.ones(4, "float32"), device="fake0")
        cell = mge.Tensor(np.ones(4, "float32"), device="fake0")
        for _ in range(20):
            slow = slow + 1
        cell += slow

        def check():
            assert ready.numpy().shape == (300, 300)
            for t in (slow, cell, slow * 2):
                try:
                    t.numpy()
                except RuntimeError as e:
                    assert "still being computed when the process was forked" in str(e) and "before the fork" in str(e)
                else:
                    raise AssertionError("read")
            cell._reset(mge.Tensor(np.zeros(4, "float32"), device="fake0"))
            assert (cell + 1).numpy().tolist() == [1.0] * 4
            _core.sync()

        assert child(check) == 0
        _core.test_device()  # which ends the pause
        assert slow.numpy().tolist() == [21.0] * 4 and cell.numpy().tolist() == [22.0] * 4
        print("done")
        """,
        1,
        2,
    )
    assert says.split() == ["done"]


@pytest.mark.parametrize("executor", [0, 1], ids=["inline", "queued"])
def test_fork_from_a_thread_while_another_computes(executor: int) -> None:
    says = forked(
        """
        want, stop, codes = work(), threading.Event(), []

        def compute():
            y = mge.Tensor(np.ones((200, 200), "float32"))
            while not stop.is_set():
                (y @ y + 1).numpy()

        def fork():
            for _ in range(5):
                codes.append(child(lambda: work() == want or 1 / 0))

        computing, forking = threading.Thread(target=compute), threading.Thread(target=fork)
        computing.start(), forking.start()
        forking.join()
        stop.set()
        computing.join()
        print(codes)
        """,
        executor,
        2,
    )
    assert says.strip() == "[0, 0, 0, 0, 0]"


def test_data_workers_that_use_tensors_while_ops_are_queued() -> None:
    says = forked(
        """
        from megengine.data import DataLoader, SequentialSampler
        from megengine.data.dataset import Dataset

        class Squares(Dataset):
            def __init__(self):
                pass
            def __len__(self):
                return 24
            def __getitem__(self, i):
                assert mge.device.get_num_threads() == 1
                return (F.full((64, 64), float(i)) @ F.eye(64) + x[:64, :64] * 0).numpy()

        data = Squares()
        for _ in range(3):
            busy = x @ x
            loader = DataLoader(data, sampler=SequentialSampler(data, batch_size=4), num_workers=2)
            batches = [b for b in loader]
            assert [float(b[k, 3, 5]) for b in batches for k in range(4)] == [float(i) for i in range(24)], batches
        print("done")
        """,
        1,
        2,
    )
    assert says.split() == ["done"]


def test_a_fork_beside_threads_that_compute_without_the_interpreter_lock() -> None:
    """They may be anywhere in a kernel, holding any lock of it; the child computes all the same."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import os, threading
                import numpy as np
                import megengine as mge, megengine.functional as F
                from megengine.jit import trace

                x = mge.Tensor(np.eye(200, dtype="float32"))
                image = mge.Tensor(np.ones((2, 16, 40, 40), "float32"))
                weight = mge.Tensor(np.ones((16, 16, 3, 3), "float32"))
                stop = threading.Event()

                @trace(without_host=True)
                def chain(x):
                    return F.matmul(F.matmul(x, x), x)

                def compute():
                    n = 0
                    while not stop.is_set():
                        n += 1
                        F.matmul(x, x), F.conv2d(image[:, :, : 20 + n % 20], weight), chain(x)

                threads = [threading.Thread(target=compute) for _ in range(3)]
                [t.start() for t in threads]
                for _ in range(20):
                    pid = os.fork()
                    if pid == 0:
                        ok = F.matmul(x, x).numpy()[0, 0] == 1 and F.conv2d(image, weight).numpy().size
                        os._exit(0 if ok else 1)
                    assert os.waitpid(pid, 0)[1] == 0
                stop.set()
                [t.join() for t in threads]
                print("fine")
                """
            ),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "fine", done.stdout + done.stderr


def test_a_child_lets_go_of_what_its_parent_had_on_another_device() -> None:
    """Its pool starts over in the child; the one that the parent's tensors point at was left locked."""
    says = subprocess.run([sys.executable, "-c", textwrap.dedent(DROPPED)], capture_output=True, text=True, timeout=60)
    assert says.returncode == 0 and says.stdout == "status 0\n", says.stdout + says.stderr


DROPPED = """
    import os, signal
    import megengine as mge
    from megengine.core import _core
    _core.test_device()  # before there is any pool: forks then tell this device first
    x = mge.Tensor([1.0, 2.0], device="fake0")
    y = (x + 1).numpy()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        del x
        os._exit(0)
    print("status", os.waitpid(pid, 0)[1])
"""
