"""What fails inside a program says which op, with what inputs, at which line of the user's; and everything goes on."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megenginelite as lite
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core import _core
from megengine.jit import trace
from megengine.optimizer import SGD
from megengine.utils.comp_graph_tools import GraphInference

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
GOOD, BAD = np.array([0, 3], np.int32), np.array([0, 7], np.int32)


def line_of(function: Callable[..., Any], text: str) -> str:
    """``file.py:12`` of the line of the function that has this text."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    offset = next(i for i, line in enumerate(lines) if text in line)
    return f"{pathlib.Path(__file__).name}:{first + offset}"


# ---- programs that fail for some inputs


def plain(table: Tensor, index: Tensor) -> Tensor:
    rows = table[index]  # here
    return rows * 2


def among_fused(table: Tensor, index: Tensor) -> Tensor:
    a = F.relu(table * 2 + 1) - 0.5
    rows = F.gather(a, 0, F.broadcast_to(index.reshape(-1, 1), (2, 3)))  # here
    return F.exp(-rows) + 1


def composite(table: Tensor, index: Tensor) -> Tensor:
    embedded = F.embedding(index, table)  # here
    return F.tanh(embedded) + 1


PROGRAMS = {"plain": (plain, "index"), "among fused": (among_fused, "gather"), "composite": (composite, "take|index")}


def expect(error: str, function: Callable[..., Any], op: str) -> None:
    assert any(name in error for name in op.split("|")), error
    assert "7" in error, "the index that is out of range"
    assert line_of(function, "# here") in error, error
    assert "float32[4,3]" in error and "int32[2" in error, f"shapes and dtypes of the inputs: {error}"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("without_host", [False, True])
def test_an_index_out_of_range_in_a_traced_call(name: str, without_host: bool) -> None:
    function, op = PROGRAMS[name]
    f = trace(function, symbolic=True, without_host=without_host)
    table = Tensor(TABLE)
    want = [f(table, Tensor(GOOD)).numpy() for _ in range(2)][0]
    with pytest.raises(IndexError) as e:
        f(table, Tensor(BAD)).numpy()
    expect(str(e.value), function, op)
    np.testing.assert_array_equal(f(table, Tensor(GOOD)).numpy(), want)  # the program goes on


def dumped(function: Callable[..., Tensor], path: pathlib.Path) -> str:
    f = trace(function, symbolic=True, capture_as_const=True)
    f(Tensor(TABLE), Tensor(GOOD))
    f.dump(str(path / "net.mge"), arg_names=["table", "index"], output_names=["y"])
    return str(path / "net.mge")


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_index_out_of_range_in_a_loaded_file(name: str, tmp_path: pathlib.Path) -> None:
    function, op = PROGRAMS[name]
    net = GraphInference(dumped(function, tmp_path))
    want = net.run(inp_dict={"table": TABLE, "index": GOOD})["y"]
    with pytest.raises((IndexError, RuntimeError)) as e:
        net.run(inp_dict={"table": TABLE, "index": BAD})
    expect(str(e.value), function, op)
    np.testing.assert_array_equal(net.run(inp_dict={"table": TABLE, "index": GOOD})["y"], want)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_index_out_of_range_in_lite(name: str, tmp_path: pathlib.Path) -> None:
    function, op = PROGRAMS[name]
    net = lite.LiteNetwork()
    net.load(dumped(function, tmp_path))

    def run(index: np.ndarray) -> np.ndarray:
        net.get_io_tensor("table").set_data_by_copy(TABLE)
        net.get_io_tensor("index").set_data_by_copy(index)
        net.forward()
        net.wait()
        return net.get_io_tensor("y").to_numpy().copy()

    want = run(GOOD)
    with pytest.raises(Exception) as e:
        run(BAD)
    expect(str(e.value), function, op)
    np.testing.assert_array_equal(run(GOOD), want)


# ---- memory


def grow(x: Tensor) -> Tensor:
    y = F.exp(x) + 1
    z = F.matmul(y, y)  # here
    return F.sum(F.relu(z) * F.sigmoid(z))


@pytest.fixture
def limit() -> Iterator[Callable[[int], None]]:
    yield lambda more: _core.set_memory_limit(_core.memory_stats()["allocated"] + more)
    _core.set_memory_limit(0)


@pytest.mark.parametrize("without_host", [False, True])
def test_out_of_memory_names_the_op_at_the_peak(without_host: bool, limit: Callable[[int], None]) -> None:
    x = Tensor(np.zeros((300, 300), np.float32))
    f = trace(grow, symbolic=True, without_host=without_host)
    want = [f(x).numpy() for _ in range(2)][0]
    limit(400_000)
    with pytest.raises(MemoryError) as e:
        f(x).numpy()
    text = str(e.value)
    assert "needs" in text and "memory limit of cpu0" in text and "Free tensors" in text, text
    assert "[300,300]" in text and pathlib.Path(__file__).name + ":" in text, text
    _core.set_memory_limit(0)
    np.testing.assert_array_equal(f(x).numpy(), want)


@pytest.mark.parametrize("without_host", [False, True])
def test_a_step_that_fails_leaves_whole_parameters(without_host: bool, limit: Callable[[int], None]) -> None:
    def make() -> tuple[M.Module, Callable[..., Tensor]]:
        mge.random.seed(3)
        net = M.Sequential(M.Linear(200, 300), M.ReLU(), M.Linear(300, 10))
        params = list(net.parameters())
        gm, opt = GradManager().attach(params), SGD(params, lr=0.1, momentum=0.9)

        def step(x: Tensor, y: Tensor) -> Tensor:
            with gm:
                loss = F.nn.cross_entropy(net(x), y)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        return net, step

    x, y = Tensor(np.ones((64, 200), np.float32)), Tensor(np.zeros(64, np.int32))
    net, step = make()
    f = trace(step, symbolic=True, without_host=without_host)
    for _ in range(3):
        f(x, y).numpy()
    before = [p.numpy().copy() for p in net.parameters()]
    limit(50_000)
    with pytest.raises(MemoryError):
        f(x, y).numpy()
    _core.set_memory_limit(0)
    for p, was in zip(net.parameters(), before, strict=True):  # memory is taken before the first instruction
        np.testing.assert_array_equal(p.numpy(), was)
    f(x, y).numpy()
    other, plain_step = make()
    for _ in range(4):
        plain_step(x, y).numpy()
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


@pytest.mark.parametrize("without_host", [False, True])
@pytest.mark.parametrize("device", ["cpu0", "fake0"])
def test_an_argument_that_failed_does_not_take_state_along(without_host: bool, device: str) -> None:
    _core.test_device()
    w = Tensor(np.zeros(3, np.float32), device=device)

    @trace(symbolic=True, without_host=without_host)
    def add(x: Tensor) -> Tensor:
        w[...] = w + x
        return x * 2

    _core.set_option("executor", 1)
    try:
        for _ in range(2):
            add(Tensor(np.ones(3, np.float32), device=device)).numpy()
        table = Tensor(TABLE, device=device)
        bad = table[Tensor(BAD, device=device)][0]
        with pytest.raises(RuntimeError):
            add(bad).numpy()
        with pytest.raises(RuntimeError):
            bad.numpy()
        if device == "cpu0":
            np.testing.assert_array_equal(w.numpy(), np.full(3, 2))
            add(Tensor(np.ones(3, np.float32))).numpy()
            np.testing.assert_array_equal(w.numpy(), np.full(3, 3))
    finally:
        _core.set_option("executor", 0)
        try:
            _core.sync()
        except RuntimeError:
            pass  # what nobody read


# ---- an asynchronous device


@pytest.fixture
def fake() -> Iterator[None]:
    _core.test_device()
    mge.set_default_device("fake0")
    yield
    mge.set_default_device("xpux")
    _core.test_device()
    _core.sync()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("without_host", [False, True])
def test_an_index_out_of_range_on_a_device_with_streams(name: str, without_host: bool, fake: None) -> None:
    function, op = PROGRAMS[name]
    f = trace(function, symbolic=True, without_host=without_host)
    table = Tensor(TABLE)
    want = [f(table, Tensor(GOOD)).numpy() for _ in range(2)][0]
    with pytest.raises(RuntimeError) as e:
        f(table, Tensor(BAD)).numpy()
    expect(str(e.value), function, op)
    np.testing.assert_array_equal(f(table, Tensor(GOOD)).numpy(), want)


def test_a_fault_of_the_device_names_op_and_line(fake: None) -> None:
    f = trace(plain, symbolic=True, without_host=True)
    table, index = Tensor(TABLE), Tensor(GOOD)
    want = [f(table, index).numpy() for _ in range(2)][0]
    _core.test_device(fail_at=1, fault="kernel")
    with pytest.raises(RuntimeError, match="injected fault") as e:
        f(table, index).numpy()
    assert pathlib.Path(__file__).name + ":" in str(e.value), str(e.value)
    _core.test_device()
    np.testing.assert_array_equal(f(table, index).numpy(), want)


# ---- checks on demand

CHECKED = """
import numpy as np, megengine as mge, megengine.functional as F
from megengine.jit import trace

@trace(symbolic=True, without_host={without_host})
def f(x):
    y = F.exp(x) + 1
    z = F.log(x)  # here
    return y * z

x = mge.Tensor(np.array([1.0, 2.0], np.float32))
f(x).numpy(); print(f(x).numpy())
try:
    f(mge.Tensor(np.array([1.0, -2.0], np.float32))).numpy()
except Exception as e:
    print(type(e).__name__, e)
print(f(x).numpy())
"""


def run_checked(checks: str, without_host: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CHECKED.format(without_host=without_host)],
        env={**os.environ, "MGE_CHECK_PROGRAMS": checks},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("without_host", [False, True])
def test_nan_is_told_where_it_appears(without_host: bool) -> None:
    told = run_checked("nan", without_host)
    assert "is nan at element 1 of [2]" in told and "log" in told, told
    assert "<string>:8" in told or "<string>:9" in told, "the line of the op, or of the last of those fused with it"
    assert told.count("[") >= 3, "it goes on"


def test_the_other_checks_let_good_programs_pass() -> None:
    told = run_checked("memory,oracle")
    assert "Error" not in told, told


def test_an_unknown_check_is_refused() -> None:
    assert "'nans' is not a check" in run_checked("nans") and "memory, nan, oracle and all" in run_checked("nans")
