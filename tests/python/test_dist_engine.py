"""Process groups and collectives of the engine, with real processes: values, gradients, traces, and bad days."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pytest

import megengine as mge
from megengine.core import _core
from megengine.core._core import dist

PRELUDE = """
import os, signal, sys, time
import numpy as np
import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.core._core import dist, ops
from megengine.jit import trace

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.Store("127.0.0.1", int(os.environ["PORT"]), "t0ken", 60)
g = dist.Group("world", rank, size, store, os.environ["BACKEND"], float(os.environ["TIMEOUT"]))
me = dict(group="world", rank=rank, size=size)
T = mge.Tensor

def same(got, want):
    got = got.numpy() if isinstance(got, mge.Tensor) else got
    assert got.shape == np.shape(want) and got.dtype == np.asarray(want).dtype, (got, want)
    np.testing.assert_array_equal(got, want)

def mine(r, shape, dtype="float32"):
    return np.random.RandomState(r + 1).uniform(-9, 9, shape).astype(dtype)

def error_of(f):
    try:
        f()
    except Exception as e:
        return str(e)
    raise AssertionError("no error")
"""


class Rank:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.code: int | None = None
        self.err = self.out = ""


def start(
    body: str, size: int, port: int, backend: str = "shm", timeout: float = 60, **env: str
) -> list[subprocess.Popen[str]]:
    script = PRELUDE + textwrap.dedent(body)
    common = dict(os.environ, WORLD_SIZE=str(size), PORT=str(port), BACKEND=backend, TIMEOUT=str(timeout))
    common |= {"OMP_NUM_THREADS": "1", **env}
    return [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**common, "RANK": str(r)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(size)
    ]


def run(body: str, size: int = 2, **kw: Any) -> list[Rank]:
    """Every rank runs ``body``; nobody may take longer than a minute and a half."""
    server = dist.StoreServer(token="t0ken")
    ranks = [Rank(p) for p in start(body, size, server.port, **kw)]
    try:
        for r in ranks:
            r.out, r.err = r.process.communicate(timeout=90)
            r.code = r.process.returncode
    finally:
        for r in ranks:
            r.process.kill()
        server.close()
    return ranks


def run_well(body: str, size: int = 2, **kw: Any) -> list[Rank]:
    ranks = run(body, size, **kw)
    for i, r in enumerate(ranks):
        assert r.code == 0, f"rank {i}: {r.code}\n{r.err}"
    return ranks


BACKENDS = [b for b in dist.backends() if b in ("shm", "gloo")]


def test_gloo_is_part_of_this_build() -> None:
    assert BACKENDS == ["shm", "gloo"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_of_every_collective(backend: str) -> None:
    run_well(
        """
        assert g.backend == os.environ["BACKEND"] and g.failed is None
        for shape in [(4, 3), (2, 300, 400), (), (0, 5), (2, 1)]:
            for dtype in ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64"]:
                x, other = mine(rank, shape, dtype), mine(1 - rank, shape, dtype)
                first, second = (x, other) if rank == 0 else (other, x)
                y = _core.exact_tensor(x)
                same(ops.dist_all_reduce(y, **me), first + second)
                same(ops.dist_all_reduce(y, mode="max", **me), np.maximum(first, second))
                same(ops.dist_all_reduce(y, mode="min", **me), np.minimum(first, second))
                same(ops.dist_reduce(y, root=1, **me), first + second if rank == 1 else np.zeros(0, dtype))
                same(ops.dist_broadcast(y, root=1, **me), second)
                if not shape:
                    continue
                same(ops.dist_all_gather(y, **me), np.concatenate([first, second]))
                same(ops.dist_gather(y, **me), np.concatenate([first, second]) if rank == 0 else np.zeros(0, dtype))
                half = slice(rank * shape[0] // 2, (rank + 1) * shape[0] // 2)
                same(ops.dist_reduce_scatter(y, **me), (first + second)[half])
                same(ops.dist_scatter(y, **me), first[half])
                same(ops.dist_all_to_all(y, **me), np.concatenate([first[half], second[half]]))
        # strided, bool, bfloat16
        x = mine(rank, (40, 30))
        same(ops.dist_all_reduce(T(x).transpose(1, 0)[3:17], **me), (mine(0, (40, 30)) + mine(1, (40, 30))).T[3:17])
        b = T(np.array([True, False, rank == 0, rank == 1]))
        same(ops.dist_all_reduce(b, mode="max", **me), [True, False, True, True])
        same(ops.dist_all_reduce(b, mode="min", **me), [True, False, False, False])
        h = T(x).astype("bfloat16")
        both = [T(mine(r, (40, 30))).astype("bfloat16") for r in range(2)]
        same(ops.dist_all_reduce(h, **me).astype("float32"), (both[0] + both[1]).astype("float32").numpy())
        if rank == 0:
            ops.dist_send(T(x), peer=1, **me)
        else:
            same(ops.dist_recv(peer=0, shape=(40, 30), dtype="float32", **me), mine(0, (40, 30)))
        g.barrier()
        assert g.exchange(b"r%d" % rank) == [b"r0", b"r1"]
        g.close()
        assert dist.group_names() == []
        """,
        backend=backend,
    )


def test_three_ranks_add_in_their_order() -> None:
    run_well(
        """
        parts = [mine(r, (70001,)) for r in range(3)]
        same(ops.dist_all_reduce(T(parts[rank]), **me), (parts[0] + parts[1]) + parts[2])
        at_root = (parts[0] + parts[1]) + parts[2] if rank == 2 else np.zeros(0, "float32")
        same(ops.dist_reduce(T(parts[rank]), root=2, **me), at_root)
        same(ops.dist_broadcast(T(parts[rank]), root=2, **me), parts[2])
        """,
        size=3,
    )


def test_gradients_are_those_of_one_process() -> None:
    """The loss is the sum of weights times results over all ranks; its gradient at x of a rank follows by hand."""
    run_well(
        """
        shape = (4, 3)
        def grad(f, x, w):
            x = T(x)
            gm = GradManager().attach(x)
            with gm:
                y = f(x)
                gm.backward(y, T(w[: y.size].reshape(y.shape)))
            return x.grad.numpy()

        w = [mine(10 + r, 8 * 3) for r in range(2)]
        parts = [mine(r, shape) for r in range(2)]
        whole = [v[:12].reshape(shape) for v in w]
        same(grad(lambda x: ops.dist_all_reduce(x, **me), parts[rank], w[rank]), whole[0] + whole[1])
        top = np.maximum(*parts)
        same(grad(lambda x: ops.dist_all_reduce(x, mode="max", **me), parts[rank], w[rank]),
             (whole[0] + whole[1]) * (parts[rank] == top))
        same(grad(lambda x: ops.dist_reduce(x, **me), parts[rank], w[rank]), whole[0])
        same(grad(lambda x: ops.dist_broadcast(x, **me), parts[rank], w[rank]),
             whole[0] + whole[1] if rank == 0 else np.zeros(shape, "float32"))
        wide = [v.reshape(8, 3) for v in w]
        same(grad(lambda x: ops.dist_all_gather(x, **me), parts[rank], w[rank]),
             (wide[0] + wide[1])[4 * rank : 4 * rank + 4])
        halves = [v[:6].reshape(2, 3) for v in w]
        same(grad(lambda x: ops.dist_reduce_scatter(x, **me), parts[rank], w[rank]), np.concatenate(halves))
        same(grad(lambda x: ops.dist_gather(x, **me), parts[rank], w[rank]), wide[0][4 * rank : 4 * rank + 4])
        same(grad(lambda x: ops.dist_scatter(x, **me), parts[rank], w[rank]),
             np.concatenate(halves) if rank == 0 else np.zeros(shape, "float32"))
        same(grad(lambda x: ops.dist_all_to_all(x, **me), parts[rank], w[rank]),
             np.concatenate([whole[0][2 * rank :][:2], whole[1][2 * rank :][:2]]))
        if rank == 0:  # x goes to the other process, is doubled there, and its gradient comes back
            same(grad(lambda x: ops.dist_send(x, peer=1, **me), parts[0], w[0]), 2 * whole[1])
        else:
            f = lambda d: ops.dist_recv(d, peer=0, shape=shape, dtype="float32", **me) * 2
            same(grad(f, np.float32(1), w[1]), np.float32(0))
        """
    )


def test_a_call_returns_at_once_and_waits_without_burning_a_core() -> None:
    run_well(
        """
        g.barrier()
        if rank == 1:
            time.sleep(1.5)
        before, cpu = time.time(), time.process_time()
        y = ops.dist_all_reduce(T(mine(rank, 100000)), **me)
        called = time.time() - before
        z = T(np.ones(4, "float32")) * 3  # other work goes on meanwhile
        same(z, np.full(4, 3, "float32"))
        early = time.time() - before
        same(y + 0, mine(0, 100000) + mine(1, 100000))
        if rank == 0:
            assert called < 0.5 and early < 0.7, (called, early)
            assert time.time() - before > 1
            assert time.process_time() - cpu < 0.5, time.process_time() - cpu
        """
    )


def test_results_are_inputs_of_the_next_collective() -> None:
    run_well(
        """
        x = T(np.full(5, rank + 1, "float32"))
        for _ in range(50):
            x = ops.dist_all_reduce(x, **me) / 2
        same(x, np.full(5, 1.5, "float32"))
        _core.set_option("executor", 1)  # ops on a worker, collectives on theirs
        for _ in range(50):
            x = ops.dist_all_reduce(x * 2, **me) / 4
        same(x, np.full(5, 1.5, "float32"))
        mge._full_sync() if hasattr(mge, "_full_sync") else _core.full_sync()
        """
    )


@pytest.mark.parametrize("mode", ["symbolic", "eager", "replay"])
def test_a_traced_step_has_the_bits_of_an_eager_one(mode: str) -> None:
    run_well(
        f"""
        mode = {mode!r}
        """
        + """
        def step(x, w):
            gm = GradManager().attach(w)
            with gm:
                loss = (ops.dist_all_reduce(F.tanh(x @ w), **me) ** 2).sum()
                gm.backward(loss)
            grad = ops.dist_all_reduce(w.grad, **me) / size
            w._reset(w - 0.1 * grad)
            w.grad = None
            return loss
        traced = {"symbolic": trace(symbolic=True), "eager": trace(symbolic=False),
                  "replay": trace(without_host=True)}[mode](step)
        w0 = T(mine(7, (6, 4)) / 9)
        w1 = T(mine(7, (6, 4)) / 9)
        for k in range(5):
            x = T(mine(10 * k + rank, (3, 6)))
            a, b = step(x, w0), traced(x, w1)
            same(a, b.numpy())
            same(w0, w1.numpy())
            extra = ops.dist_all_reduce(T(np.ones(3, "float32")), **me)  # between two calls, in order
        same(extra, np.full(3, 2, "float32"))
        """
    )


def test_a_replayed_program_goes_on_while_a_collective_waits() -> None:
    """Work that does not need the sum is done before the other process has come."""
    run_well(
        """
        @trace(without_host=True)
        def step(x, w):
            total = ops.dist_all_reduce(x, **me)
            for _ in range(40):
                w = F.tanh(w @ w)
            return total + 1, w.sum()
        x, w = mine(rank, 1000), T(mine(5, (200, 200)))
        for k in range(4):
            g.barrier()
            if rank == 1 and k == 3:
                time.sleep(1.5)
            cpu = time.process_time()
            y, s = step(T(x + k), w)
            same(y, (mine(0, 1000) + k) + (mine(1, 1000) + k) + 1)
        """
    )


def test_a_traced_step_that_fails_names_the_rank_and_the_line() -> None:
    for option in ("symbolic=True", "without_host=True"):
        run_well(
            f"""
            @trace({option})
            """
            + """
            def step(x):
                return ops.dist_all_reduce(x * 2, **me) + 1
            for k in range(3):
                same(step(T(np.ones(3, "float32"))), np.full(3, 5, "float32"))
            if rank == 1:
                ops.dist_all_gather(T(np.ones(3, "float32")), **me)
            text = error_of(lambda: (step(T(np.ones(3, "float32"))).numpy(), _core.full_sync()))
            if rank == 0:
                assert "disagree" in text and "ank 1 calls dist_all_gather(float32[3])" in text, text
                assert "<string>:" in text, text
            """
        )


def test_a_model_file_has_no_other_processes(tmp_path: Any) -> None:
    @mge.jit.trace(symbolic=True, capture_as_const=True)
    def f(x: Any) -> Any:
        return _core.ops.dist_all_reduce(x) + 1

    f(mge.Tensor(np.ones(3, "float32")))
    with pytest.raises(NotImplementedError, match="dist_all_reduce.*other processes"):
        f.dump(str(tmp_path / "m.mge"))


def test_wrong_arguments_are_refused_at_the_call() -> None:
    x = mge.Tensor(np.ones((3, 2), "float32"))
    ops = _core.ops
    with pytest.raises(AssertionError, match="axis 0 of x must divide into 2 equal blocks"):
        ops.dist_reduce_scatter(x, group="g", size=2)
    with pytest.raises(ValueError, match="mode must be sum, prod, max or min; got 'avg'"):
        ops.dist_all_reduce(x, mode="avg")
    with pytest.raises(TypeError, match="bool has no sum"):
        ops.dist_all_reduce(x > 0)
    with pytest.raises(ValueError, match="peer must be another rank"):
        ops.dist_send(x, peer=0)
    with pytest.raises(ValueError, match="root must be a rank of the group; got 2 of 2"):
        ops.dist_broadcast(x, group="g", size=2, root=2)
    with pytest.raises(ValueError, match="needs an axis"):
        ops.dist_all_gather(mge.Tensor(1.0))
    with pytest.raises(ValueError, match="this process has no group named 'nowhere'"):
        ops.dist_all_reduce(x, group="nowhere", size=2)
    with pytest.raises(ValueError, match="need a store to meet"):
        dist.Group("g", 0, 2)


# ---- bad days


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "call, told",
    [
        ("ops.dist_all_reduce(T(np.ones(5, 'float32')), **me)", r"dist_all_reduce(float32[5], mode=\"sum\")"),
        ("ops.dist_all_reduce(T(np.ones(4, 'int32')), **me)", r"dist_all_reduce(int32[4], mode=\"sum\")"),
        ("ops.dist_all_gather(T(np.ones(4, 'float32')), **me)", "dist_all_gather(float32[4])"),
    ],
    ids=["shape", "dtype", "op"],
)
def test_ranks_that_disagree_are_told_what_the_other_does(backend: str, call: str, told: str) -> None:
    run_well(
        f"""
        y = {call} if rank == 1 else ops.dist_all_reduce(T(np.ones(4, "float32")), **me)
        text = error_of(lambda: y.numpy())
        """
        + f"""
        assert "disagree" in text and '{told}' in text and 'dist_all_reduce(float32[4], mode="sum")' in text, text
        assert "<string>:" in text, text  # the user's line
        later = error_of(lambda: ops.dist_all_gather(T(np.ones(4, "float32")), **me).numpy())
        assert "cannot be used any more" in later and "disagree" in later, later
        assert "disagree" in error_of(g.wait)
        assert "disagree" in g.failed
        """,
        backend=backend,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_that_dies_is_named_by_all_others(backend: str) -> None:
    ranks = run(
        """
        ops.dist_all_reduce(T(np.ones(4, "float32")), **me).numpy()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        before = time.time()
        text = error_of(lambda: ops.dist_all_reduce(T(np.ones(300000, "float32")), **me).numpy())
        assert "rank 1" in text and "died" in text and "<string>:" in text, text
        assert time.time() - before < 20
        """,
        size=3,
        backend=backend,
    )
    assert ranks[1].code == -signal.SIGKILL
    for r in (ranks[0], ranks[2]):
        assert r.code == 0, r.err


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_that_hangs_is_named_within_the_timeout(backend: str) -> None:
    run_well(
        """
        ops.dist_all_reduce(T(np.ones(4, "float32")), **me).numpy()
        if rank == 2:
            time.sleep(6)
        before = time.time()
        text = error_of(lambda: ops.dist_all_reduce(T(np.ones(4, "float32")), **me).numpy())
        assert "rank 2" in text and "did not come within 2 s" in text, text
        assert time.time() - before < 8
        """,
        size=3,
        backend=backend,
        timeout=2,
    )


def test_one_that_ends_early_is_named_and_nobody_hangs_at_exit() -> None:
    """A result nobody reads does not keep a process from ending; the others are told that it left."""
    ranks = run(
        """
        if rank == 1:
            sys.exit(0)
        y = ops.dist_all_reduce(T(np.ones(4, "float32")), **me)
        """
    )
    assert ranks[1].code == 0
    assert ranks[0].code == 0 and "rank 1" in ranks[0].err and "left the group" in ranks[0].err, ranks[0].err


def test_a_process_ends_although_the_other_never_comes() -> None:
    before = time.time()
    ranks = run(
        """
        if rank == 0:
            y = ops.dist_all_reduce(T(np.ones(4, "float32")), **me)
        else:
            time.sleep(12)
            text = error_of(g.barrier)
            assert "rank 0" in text, text
        """,
        timeout=300,
    )
    assert [r.code for r in ranks] == [0, 0], ranks[1].err
    assert time.time() - before < 60


def test_control_c_ends_a_wait() -> None:
    server = dist.StoreServer(token="t0ken")
    ranks = start(
        """
        if rank == 0:
            store.set("ready", b"")
            try:
                ops.dist_all_reduce(T(np.ones(4, "float32")), **me).numpy()
            except KeyboardInterrupt:
                g.abort("the user has had enough")
                store.set("done", b"")
                sys.exit(3)
        store.get("done", 30)
        text = error_of(g.barrier)
        assert "the user has had enough" in text, text
        """,
        2,
        server.port,
    )
    dist.Store("127.0.0.1", server.port, "t0ken", 60).get("ready")
    time.sleep(0.5)
    ranks[0].send_signal(signal.SIGINT)
    errors = [r.communicate(timeout=60)[1] for r in ranks]
    assert [r.returncode for r in ranks] == [3, 0], errors


def test_a_forked_child_has_no_group() -> None:
    run_well(
        """
        child = os.fork()
        if child == 0:
            try:
                text = error_of(lambda: ops.dist_all_reduce(T(np.ones(4, "float32")), **me).numpy())
                os._exit(0 if "forked child" in text else 4)
            except BaseException:
                os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        same(ops.dist_all_reduce(T(np.ones(4, "float32")), **me), np.full(4, 2, "float32"))
        """
    )


def test_meetings_that_cannot_be_say_why() -> None:
    server = dist.StoreServer(token="t0ken")
    with pytest.raises(RuntimeError, match="is in use"):
        dist.StoreServer(port=server.port)
    with pytest.raises(RuntimeError, match="token"):
        dist.Store("127.0.0.1", server.port, "guess", 5)
    store = dist.Store("127.0.0.1", server.port, "t0ken", 5)
    with pytest.raises(RuntimeError, match="rank 1 never came to 'alone' within 0.3 s"):
        dist.Group("alone", 0, 2, store, timeout=0.3)
    with pytest.raises(RuntimeError, match="rank 0 of 'alone' is taken"):
        dist.Group("alone", 0, 2, store, timeout=0.3)
    with pytest.raises(RuntimeError, match="nobody has set 'k' within 0.1 s"):
        store.get("k", 0.1)
    server.close()
    with pytest.raises(RuntimeError, match="server closed the connection"):
        store.get("k")
