"""Programs that end, fork or are ended in the middle of something: no crash, no hang, and nothing lost in silence."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NET = ROOT / "tests" / "data" / "lite" / "net_v1.mge"

HEAD = f"""
import atexit, os, signal, sys, threading, time
import numpy as np
import megengine as mge, megengine.functional as F
import megenginelite as lite
from megengine.core import _core

NET = {str(NET)!r}

def network():
    net = lite.LiteNetwork()
    net.load(NET)
    return net
"""


def program(code: str, timeout: float = 60) -> tuple[int, str, str]:
    """Exit status, stdout and stderr; one that hangs is an error."""
    command = [sys.executable, "-c", HEAD + textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


DAEMONS = {
    "kernels": """
        x = mge.Tensor(np.eye(300, dtype="float32"))
        def work():
            while True:
                (x @ x).numpy()
    """,
    "queued": """
        _core.set_option("executor", 1)
        def work():
            x = mge.Tensor(np.eye(100, dtype="float32"))
            while True:
                x = x @ x
    """,
    "networks": """
        def work():
            net = network()
            net.set_start_callback(lambda ios: sum(range(1000)))
            while True:
                net.forward()
                net.wait()
    """,
    "async networks": """
        def work():
            net = network()
            net.async_with_callback(lambda: sum(range(1000)))
            while True:
                net.forward()
    """,
}


@pytest.mark.parametrize("kind", DAEMONS)
def test_daemon_threads_at_work_do_not_disturb_the_end(kind: str) -> None:
    """Python ends them where they want to run again, by unwinding, which C++ on the way would take for a crash."""
    code = textwrap.dedent(DAEMONS[kind]) + textwrap.dedent(
        """
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        print("end")
        """
    )
    for _ in range(4):
        assert program(code) == (0, "end\n", "")


def test_async_runs_end_before_the_program() -> None:
    """Their callbacks need the interpreter, and errors of runs that nobody waits for are told."""
    says = program(
        """
        slow, failing, unloaded = network(), network(), lite.LiteNetwork()
        unloaded.async_with_callback(lambda: None)
        def late():
            time.sleep(0.3)
            print("late", flush=True)
        def wrong():
            raise ValueError("from a callback")
        slow.async_with_callback(late)
        failing.async_with_callback(wrong)
        slow.forward(), failing.forward()
        print("end", flush=True)
        """
    )
    assert says == (0, "end\nlate\n", "megenginelite: an error that nobody read: from a callback\n")


def test_an_exit_handler_that_fails_does_not_stop_the_others() -> None:
    code, out, err = program(
        """
        _core.set_option("executor", 1)
        mge._atexit(lambda: print("first registered"))
        mge._atexit(lambda: 1 / 0)
        mge._atexit(lambda: print("last registered"))
        F.indexing_one_hot(mge.Tensor(np.eye(5, dtype="float32")), mge.Tensor(np.full(5, 99, "int32")), axis=1)
        """
    )
    assert code == 0 and out == "last registered\nfirst registered\n"
    assert "ZeroDivisionError" in err and "an error that nobody read" in err  # which the oldest handler tells


def test_handlers_and_finalizers_compute() -> None:
    says = program(
        """
        class Late:
            def __init__(self):
                self.x, self.net = mge.Tensor(np.ones(3, "float32")), network()
            def __del__(self):
                self.net.forward()
                self.net.wait()
                print("finalizer", flush=True)
        x = mge.Tensor(np.eye(3, dtype="float32"))
        _core.set_option("executor", 1)
        atexit.register(lambda: print((x @ x).numpy().sum(), flush=True))
        mge._atexit(lambda: print((x + x).numpy().sum(), flush=True))
        late = Late()
        y = x @ x
        """
    )
    assert says == (0, "3.0\n6.0\nfinalizer\n", "")


def test_an_end_without_ceremony() -> None:
    code, out, err = program(
        """
        _core.set_option("executor", 1)
        mge.device.set_num_threads(4)
        x = mge.Tensor(np.eye(300, dtype="float32"))
        for _ in range(100):
            x = x @ x
        net = network()
        net.async_with_callback(lambda: None)
        net.forward()
        os._exit(7)
        """
    )
    assert (code, out, err) == (7, "", "")


def test_an_executor_that_gets_no_thread_says_so_and_works_when_there_is_one() -> None:
    says = program(
        """
        import resource, threading
        x = mge.Tensor(np.ones(3, "float32"))
        _core.set_option("executor", 1)
        threading.stack_size()
        before = resource.getrlimit(resource.RLIMIT_AS)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), before[1]))  # less than a stack
        try:
            (x + 1).numpy()
        except RuntimeError as e:
            print(str(e).split(":")[1].strip())
        resource.setrlimit(resource.RLIMIT_AS, before)
        print((x + 1).numpy().tolist())
        """
    )
    assert says == (0, "the system gives no thread to run ops on\n[2.0, 2.0, 2.0]\n", "")


def test_children_forked_while_networks_are_made_make_and_run_their_own() -> None:
    """The thread that forks comes alone: no lock of loading and compiling, and no static half made, may come along."""
    says = program(
        """
        def work(profile):
            while not stop.is_set():
                net = lite.LiteNetwork()
                if profile:
                    net.set_network_algo_policy(lite.LiteAlgoSelectStrategy.LITE_ALGO_PROFILE)
                net.load(NET)
                net.forward()
                net.wait()
        stop = threading.Event()
        threads = [threading.Thread(target=work, args=(p,)) for p in (False, False, True)]
        [t.start() for t in threads]
        codes = []
        for _ in range(40):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                net = network()
                net.forward()
                net.wait()
                os._exit(0)
            codes.append(os.waitpid(pid, 0)[1])
        stop.set()
        [t.join() for t in threads]
        print(set(codes))
        """
    )
    assert says == (0, "{0}\n", "")


def test_a_forked_child_uses_the_networks_of_its_parent() -> None:
    """Those that were idle, whose threads are made anew; one that a thread was running says so, and all can go."""
    says = program(
        """
        def child(body):
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                body()
                print("ends", flush=True)
                sys.exit()  # as a program ends: it waits for no run of its parent
            return os.waitpid(pid, 0)[1]

        def run(net):
            net.forward()
            net.wait()
            return net.get_io_tensor("logits").to_numpy().tobytes()

        plain, idle, busy = network(), network(), network()
        told = []
        idle.async_with_callback(lambda: told.append(os.getpid()))
        want = run(plain)
        assert run(idle) == want
        entered, go_on = threading.Event(), threading.Event()
        def hold(ios):
            entered.set()
            go_on.wait()
        busy.set_start_callback(hold)
        thread = threading.Thread(target=busy.forward)
        thread.start()
        entered.wait()

        def body():
            for net in (plain, idle, idle):
                assert run(net) == want
            assert told[-1] == os.getpid()
            try:
                busy.forward()
            except RuntimeError as e:
                print(e)
            global_names = globals()
            for name in ("plain", "idle", "busy"):
                del global_names[name]

        print(child(body))
        slow = network()
        slow.async_with_callback(lambda: time.sleep(0.5))
        slow.forward()
        print(child(lambda: None))
        go_on.set()
        thread.join()
        assert run(idle) == want
        """
    )
    lost = "another thread was using this network when the process was forked, and the child does not have that thread."
    said = f"lite: {lost} Make another network, or fork between runs.\nends\n0\nends\n0\n"
    assert says == (0, said, "")


def test_sub_interpreters_are_refused() -> None:
    code = textwrap.dedent(
        f"""
        import _xxsubinterpreters as sub
        try:
            sub.run_string(sub.create(), "import sys; sys.path[:] = {sys.path!r}; import megengine")
        except sub.RunFailedError as e:
            print(e)
        import megenginelite
        """
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert "runs in the main interpreter of a process only" in done.stdout, done.stdout + done.stderr


def test_packages_are_imported_by_many_threads() -> None:
    says = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import sys, threading
                sys.setswitchinterval(1e-5)
                wrong = []
                def load(name):
                    try:
                        __import__(name)
                    except BaseException as e:
                        wrong.append(e)
                def in_threads(names):
                    threads = [threading.Thread(target=load, args=(n,)) for n in names]
                    [t.start() for t in threads]
                    [t.join() for t in threads]
                in_threads(["megengine"] * 8)
                parts = "data jit optimizer utils.network quantization traced_module distributed hub amp random".split()
                in_threads([f"megengine.{p}" for p in parts * 2] + ["megenginelite"] * 4)
                import megengine
                print((megengine.Tensor([1.0]) + 1).item(), wrong)
                """
            ),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (says.stdout, says.stderr) == ("2.0 []\n", "")


WORKERS = """
import multiprocessing, sys
import numpy as np
import megengine as mge, megengine.functional as F
from megengine.data import DataLoader, SequentialSampler
from megengine.data.dataset import Dataset

class Doubles(Dataset):
    def __init__(self):
        pass
    def __len__(self):
        return 12
    def __getitem__(self, i):
        return (F.full((4,), float(i)) * 2).numpy()

def add_one(queue, t):
    queue.put(t + 1)

if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    x = mge.Tensor([1.0, 2.0])
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=add_one, args=(queue, x))
    process.start()
    got = queue.get(timeout=50).numpy().tolist()
    process.join()
    data = Doubles()
    batches = list(DataLoader(data, SequentialSampler(data, batch_size=4), num_workers=2))
    print(got, process.exitcode, [int(v) for b in batches for v in b[:, 0]])
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_started_in_each_way(tmp_path: Path, method: str) -> None:
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    done = subprocess.run([sys.executable, script, method], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == (f"[2.0, 3.0] 0 {list(range(0, 24, 2))}\n", "")


def test_signals_whose_handlers_raise_leave_everything_usable() -> None:
    says = program(
        """
        from megengine.autodiff import GradManager
        from megengine.jit import trace
        class Enough(Exception):
            pass
        def enough(*_):
            raise Enough
        signal.signal(signal.SIGALRM, enough)
        x = mge.Tensor(np.eye(200, dtype="float32"))
        w = mge.Parameter(np.eye(200, dtype="float32"))
        gm = GradManager().attach([w])
        def grad(x):
            with gm:
                gm.backward((x @ w).sum())
            return w.grad
        traced = trace(grad)
        seen = 0
        for i in range(40):
            signal.setitimer(signal.ITIMER_REAL, 0.0015 * (i + 1))
            try:
                while True:
                    (traced if i % 2 else grad)(x)
            except Enough:
                seen += 1
        w.grad = None
        print(seen, float(grad(x).sum().numpy()))
        """
    )
    assert says == (0, "40 40000.0\n", "")
