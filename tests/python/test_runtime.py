"""Executor, errors, memory: nothing lost, nothing hung."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.core import _core


@pytest.fixture
def asynchronous() -> Iterator[None]:
    _core.set_option("executor", 1)
    yield
    _core.set_option("executor", 0)


def python(code: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=timeout
    )


def program(seed: int) -> np.ndarray:
    """A random chain of ops whose values depend on every step."""
    rng = np.random.RandomState(seed)
    pool = [mge.Tensor(rng.randn(4, 6).astype(np.float32)) for _ in range(3)]
    for _ in range(60):
        a, b = (pool[rng.randint(len(pool))] for _ in range(2))
        kind = rng.randint(6)
        if kind == 0:
            y = a + b
        elif kind == 1:
            y = a * b * 0.5
        elif kind == 2:
            y = F.tanh(a) - b
        elif kind == 3:
            y = F.matmul(F.matmul(a, b, transpose_b=True), b) * 0.1
        elif kind == 4:
            y = F.concat([a[:2], b[2:]], axis=0)
        else:
            y = F.reshape(F.transpose(a, (1, 0)), (4, 6)) + b.mean()
        pool[rng.randint(len(pool))] = F.tanh(y)
    return np.concatenate([p.numpy() for p in pool])


@pytest.mark.parametrize("seed", range(6))
def test_inline_and_async_donation_and_threads_give_the_same_bits(seed: int) -> None:
    want = program(seed).tobytes()
    threads = _core.get_num_threads()
    try:
        for executor in (0, 1):
            for donation in (0, 1):
                for n in (1, 2):
                    _core.set_option("executor", executor)
                    _core.set_option("donation", donation)
                    _core.set_num_threads(n)
                    assert program(seed).tobytes() == want
    finally:
        _core.set_option("executor", 0)
        _core.set_option("donation", 1)
        _core.set_num_threads(threads)


@pytest.mark.asan_subset
def test_async_error_surfaces_where_the_value_is_read_and_names_the_line(asynchronous: None) -> None:
    x = mge.Tensor(np.zeros((2, 3), np.float32))
    loss, _ = _core.ops.softmax_xent(x, mge.Tensor(np.array([0, 7], np.int32)), axis=1)  # the guilty line
    dependant = loss * 2 + 1
    other = x + 1
    with pytest.raises(_core.AsyncError) as e:
        dependant.numpy()
    assert isinstance(e.value.__cause__, RuntimeError)
    text = str(e.value)
    assert "label 7" in text and "softmax_xent(float32[2,3], int32[2])" in text and "test_runtime.py" in text
    assert other.numpy().sum() == 6  # unrelated work goes on
    _core.sync()  # the error was seen; sync is quiet


def test_sync_reports_an_unseen_error_once(asynchronous: None) -> None:
    x = mge.Tensor(np.zeros((2, 3), np.float32))
    _core.ops.softmax_xent(x, mge.Tensor(np.array([0, 7], np.int32)), axis=1)
    with pytest.raises(_core.AsyncError, match="label 7"):
        _core.sync()
    _core.sync()


def test_async_level_0_raises_at_the_call(asynchronous: None) -> None:
    _core.set_option("async_level", 0)
    try:
        x = mge.Tensor(np.zeros((2, 3), np.float32))
        with pytest.raises(RuntimeError, match="label 7"):
            _core.ops.softmax_xent(x, mge.Tensor(np.array([0, 7], np.int32)), axis=1)
    finally:
        _core.set_option("async_level", 2)


def test_shape_errors_are_raised_at_the_call_even_when_async(asynchronous: None) -> None:
    with pytest.raises(RuntimeError, match="do not broadcast"):
        mge.Tensor([1.0, 2.0]) + mge.Tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("executor", [0, 1])
def test_exit_with_work_pending_does_not_hang(executor: int) -> None:
    done = python(f"""
        import megengine as mge, numpy as np
        from megengine.core import _core
        _core.set_option("executor", {executor})
        y = mge.Tensor(np.ones((200, 200), "float32"))
        for _ in range(3000): y = y + 1
        print("end")
    """)
    assert done.returncode == 0 and done.stdout.strip() == "end", done.stderr


def test_exit_with_an_unread_error_does_not_hang_or_crash() -> None:
    done = python("""
        import megengine as mge, numpy as np
        from megengine.core import _core
        _core.set_option("executor", 1)
        _core.ops.softmax_xent(mge.Tensor(np.zeros((1, 2), "float32")), mge.Tensor(np.array([5], "int32")), axis=1)
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.asan_subset
def test_memory_limit_is_honoured_and_survivable() -> None:
    x = mge.Tensor(np.ones(1000, np.float32))
    used = _core.memory_stats()["allocated"]
    _core.set_memory_limit(used + 100_000)
    try:
        with pytest.raises(MemoryError, match="memory limit") as e:
            F.zeros((1_000_000,))
        assert isinstance(e.value, RuntimeError)
        assert (x + 1).numpy().sum() == 2000
        assert _core.memory_stats()["allocated"] <= used + 100_000
        with pytest.raises(RuntimeError, match="below"):
            _core.set_memory_limit(10)
    finally:
        _core.set_memory_limit(0)
    assert F.zeros((1_000_000,)).shape == (1_000_000,)


def test_chain_of_large_tensors_keeps_few_alive() -> None:
    x = mge.Tensor(np.zeros((1 << 20,), np.float32))
    x = x + 1
    _core.reset_peak_memory()
    base = _core.memory_stats()["allocated"]
    for _ in range(50):
        x = x + 1
    assert _core.memory_stats()["max_allocated"] - base <= 2 * (4 << 20) + 4096


def test_overflowing_and_impossible_shapes() -> None:
    with pytest.raises(RuntimeError, match="overflows"):
        F.zeros((1 << 40, 1 << 40))
    with pytest.raises(MemoryError):
        F.zeros((1 << 44,))


def test_nan_travels_and_empty_works() -> None:
    x = mge.Tensor([np.nan, 1.0, -1.0])
    assert np.isnan(F.relu(x).numpy()[0]) and np.isnan(F.maximum(x, 0.0).numpy()[0]) and np.isnan(x.max().numpy())
    empty = mge.Tensor(np.zeros((0, 3), np.float32))
    assert (
        F.exp(empty).shape == (0, 3)
        and float(empty.sum()) == 0.0
        and F.matmul(empty, mge.Tensor(np.zeros((3, 2), np.float32))).shape == (0, 2)
    )
    assert float(empty.max()) == -np.inf
    with pytest.raises(RuntimeError, match="no elements"):
        empty.astype("int32").max()


def test_import_is_small_and_fast() -> None:
    done = python("""
        import sys
        import megengine
        print(sorted(m for m in ("torch", "scipy", "matplotlib", "asyncio", "unittest") if m in sys.modules))
    """)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_a_long_chain_of_large_tensors_peaks_at_three() -> None:
    """Intermediates die as soon as the next op has read them: input, result, and one that is being written."""
    code = """
        import numpy as np
        import megengine as mge
        import megengine.functional as F

        size = 64 << 20
        x = mge.Tensor(np.ones(size // 4, np.float32))
        mge.device.reset_max_memory_stats()
        y = x
        for i in range(250):
            y = y + 1.0
            y = y * x
            y = F.relu(y)
            y = y - x
        assert float(y[5]) == float(y[-1])
        print(mge.device.get_max_allocated_memory() / size)
    """
    done = python(code, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 3.01
