"""Every failure that values can cause, in every way to run: the op the user wrote, its inputs, its own line.

A row of ``FAILURES`` is a function whose line ``# here`` fails for the bad arguments, among lines that are fused,
rewritten or folded; a mode is a way to run it. Whatever failed can be used again.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import pathlib
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megenginelite as lite
from megengine import Tensor
from megengine.core import _core
from megengine.jit import partial_trace, trace
from megengine.utils.comp_graph_tools import GraphInference

HERE = pathlib.Path(__file__).name
ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Failure:
    run: Callable[..., Tensor]
    good: tuple[np.ndarray, ...]
    bad: tuple[np.ndarray, ...]
    op: str  # a pattern: what the user wrote is made of
    text: str  # of the cause
    inputs: str  # dtype and shape of the operand that was looked at

    @property
    def line(self) -> str:
        lines, first = inspect.getsourcelines(self.run)
        return f"{HERE}:{first + next(i for i, line in enumerate(lines) if '# here' in line)}"


FAILURES: dict[str, Failure] = {}


def fails(good: Any, bad: Any, op: str, text: str, inputs: str) -> Callable[[Callable[..., Tensor]], None]:
    def add(f: Callable[..., Tensor]) -> None:
        FAILURES[f.__name__] = Failure(f, good, bad, op, text, inputs)

    return add


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


TABLE = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
IMAGE = np.linspace(-1, 1, 2 * 3 * 64, dtype=np.float32).reshape(2, 3, 8, 8)
EYE = np.eye(3, dtype=np.float32) + 0.5


@fails((TABLE, ints(0, 3)), (TABLE, ints(0, 7)), "index_get|take", "index 7", "float32\\[4,3\\]")
def an_index(x: Tensor, i: Tensor) -> Tensor:
    a = F.relu(x * 2 + 1) - 0.5
    b = a[i]  # here
    return F.exp(-b) + 1


@fails((TABLE, ints(0, 3)), (TABLE, ints(-9, 3)), "take", "index -9", "int32\\[2\\]")
def an_embedding(x: Tensor, i: Tensor) -> Tensor:
    rows = F.embedding(i, x * 2 / 4)  # here
    return F.tanh(rows) + 1


@fails((TABLE, ints([0], [3])), (TABLE, ints([0], [4])), "gather", "index 4", "int32\\[2,3\\]")
def a_gather(x: Tensor, i: Tensor) -> Tensor:
    a = (x + 1) * (x - 1)
    b = F.gather(a, 0, F.broadcast_to(i, (2, 3)))  # here
    return F.sum(F.sigmoid(b) * 3)


@fails((TABLE, ints(0, 1, 2, 0)), (TABLE, ints(0, 1, 3, 0)), "softmax_xent", "label 3", "int32\\[4\\]")
def a_label(x: Tensor, y: Tensor) -> Tensor:
    a = F.relu(x - 0.1)
    loss = F.nn.cross_entropy(a, y)  # here
    return loss * 2 + 1


@fails((TABLE, ints(0, 1, 2, 0)), (TABLE, ints(0, 5, 2, 0)), "one_hot|gather", "index 5", "int32\\[4")
def one_of_each_row(x: Tensor, i: Tensor) -> Tensor:
    a = F.abs(x) + 1
    b = F.indexing_one_hot(a, i)  # here
    return F.log(b) * 2


@fails((ints(0, 2, 1),), (ints(0, 3, 1),), "wrap_index", "one_hot: index 3", "int32\\[3\\]")
def a_class(i: Tensor) -> Tensor:
    j = i + 0
    rows = F.one_hot(j, 3)  # here
    return rows * 2 - 1


@fails((TABLE, ints(1, 2)), (TABLE, ints(1, 4)), "index_set|index_get", "index 4", "int32\\[2\\]")
def an_assignment(x: Tensor, i: Tensor) -> Tensor:
    y = x * 2
    y[i] = 0.5  # here
    return F.exp(y)


@fails((EYE,), (np.ones((3, 3), np.float32),), "matinv", "singular", "float32\\[3,3\\]")
def an_inverse(x: Tensor) -> Tensor:
    a = x * 1 + x
    b = F.matinv(a)  # here
    return b - 1


@fails(
    (IMAGE, np.array([[1, 0, 0, 4, 4]], np.float32)),
    (IMAGE, np.array([[2, 0, 0, 4, 4]], np.float32)),
    "roi_align",
    "names image 2",
    "float32\\[1,5\\]",
)
def a_region(x: Tensor, rois: Tensor) -> Tensor:
    a = F.relu(x + 1)
    b = F.vision.roi_align(a, rois, (2, 2))  # here
    return b * 0.5


@fails(
    (np.full((5, 1, 4), 0.25, np.float32), ints(5), ints([1, 2]), ints(2)),
    (np.full((5, 1, 4), 0.25, np.float32), ints(5), ints([1, 7]), ints(2)),
    "ctc_loss",
    "got 7",
    "float32\\[5,1,4\\]",
)
def a_transcript(p: Tensor, steps: Tensor, label: Tensor, n: Tensor) -> Tensor:
    a = p * 2 / 2
    b = F.nn.ctc_loss(a, steps, label, n)  # here
    return b + 1


# ---- ways to run


def tensors(arrays: tuple[np.ndarray, ...]) -> list[Tensor]:
    return [Tensor(a) for a in arrays]


def traced(**options: Any) -> Callable[[Failure, pathlib.Path], Callable[..., Any]]:
    def make(f: Failure, tmp: pathlib.Path) -> Callable[..., Any]:
        call = trace(f.run, **options)
        for _ in range(2):  # recorded and run
            call(*tensors(f.good)).numpy()
        return lambda arrays: call(*tensors(arrays)).numpy()

    return make


def partly(f: Failure, tmp: pathlib.Path) -> Callable[..., Any]:
    call = partial_trace(f.run)
    for _ in range(3):
        call(*tensors(f.good)).numpy()
    return lambda arrays: call(*tensors(arrays)).numpy()


def dumped(f: Failure, tmp: pathlib.Path) -> pathlib.Path:
    call = trace(f.run, symbolic=True, capture_as_const=True)
    call(*tensors(f.good))
    names = [f"in{i}" for i in range(len(f.good))]
    call.dump(str(tmp / "net.mge"), arg_names=names, output_names=["y"], optimize_for_inference=True)
    return tmp / "net.mge"


def in_graph_inference(f: Failure, tmp: pathlib.Path) -> Callable[..., Any]:
    net = GraphInference(str(dumped(f, tmp)))
    return lambda arrays: net.run(inp_dict={f"in{i}": a for i, a in enumerate(arrays)})["y"]


def in_lite(f: Failure, tmp: pathlib.Path) -> Callable[..., Any]:
    net = lite.LiteNetwork()
    net.load(str(dumped(f, tmp)))

    def run(arrays: tuple[np.ndarray, ...]) -> Any:
        for i, a in enumerate(arrays):
            net.get_io_tensor(f"in{i}").set_data_by_copy(a)
        net.forward()
        net.wait()
        return net.get_io_tensor("y").to_numpy().copy()

    return run


def on_a_command_line(f: Failure, tmp: pathlib.Path) -> Callable[..., Any]:
    model = dumped(f, tmp)
    program = ROOT / "build" / "dev" / "bin" / "load_and_run"

    def run(arrays: tuple[np.ndarray, ...]) -> None:
        for i, a in enumerate(arrays):
            np.save(tmp / f"in{i}.npy", a)
        given = ";".join(f"in{i}:{tmp}/in{i}.npy" for i in range(len(arrays)))
        done = subprocess.run([program, model, "--input", given, "--iter", "1"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    return run


MODES: dict[str, Callable[[Failure, pathlib.Path], Callable[..., Any]]] = {
    "eager": lambda f, tmp: lambda arrays: f.run(*tensors(arrays)).numpy(),
    "host": traced(symbolic=False),
    "symbolic": traced(symbolic=True),
    "without_host": traced(symbolic=True, without_host=True),
    "level 0": traced(symbolic=True, without_host=True, opt_level=0),
    "any size": traced(symbolic=True, without_host=True, symbolic_shape=True),
    "partial_trace": partly,
    "GraphInference": in_graph_inference,
    "Lite": in_lite,
    "load_and_run": on_a_command_line,
}


def told(run: Callable[..., Any], arrays: tuple[np.ndarray, ...]) -> str:
    with pytest.raises(Exception) as e:
        run(arrays)
    return "".join(f"{x}\n" for x in (e.value, e.value.__cause__) if x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_names_op_inputs_and_line(name: str, mode: str, tmp_path: pathlib.Path) -> None:
    f = FAILURES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = MODES[mode](f, tmp_path)
    want = run(f.good)
    text = told(run, f.bad)
    assert re.search(f.text, text), text
    if mode != "eager":  # there the traceback shows them
        assert f.line in text, text
        assert re.search(f.inputs, text), text
        assert re.search(rf"in [^\n]*({f.op})[^\n]*\(", text), text
    np.testing.assert_array_equal(run(f.good), want)


# ---- the op itself, not the one it became


def test_memory_is_wanted_by_ops_that_were_written(tmp_path: pathlib.Path) -> None:
    def grow(x: Tensor) -> Tensor:
        a = x * 2
        b = F.matmul(a, a)
        c = F.relu(b) * 3  # these run as one
        d = F.exp(c) + c
        return F.matmul(d, c)

    f = trace(grow, symbolic=True, without_host=True)
    x = Tensor(np.zeros((200, 200), np.float32))
    for _ in range(2):
        f(x).numpy()
    _core.set_memory_limit(_core.memory_stats()["allocated"] + 180_000)
    try:
        with pytest.raises(MemoryError) as e:
            f(x).numpy()
    finally:
        _core.set_memory_limit(0)
    text = str(e.value)
    assert f"{HERE}:" in text and "float32[200,200]" in text and "fused(" not in text, text


NAN = """
import numpy as np, megengine as mge, megengine.functional as F
from megengine.jit import trace

@trace(symbolic=True, without_host=True)
def f(x):
    y = F.exp(x) + 1
    z = F.log(x)
    return F.relu(y * z) + 2

x = mge.Tensor(np.array([1.0, 2.0], np.float32))
for _ in range(2):
    f(x).numpy()
try:
    f(mge.Tensor(np.array([1.0, -2.0], np.float32))).numpy()
except Exception as e:
    print(e)
"""


def test_the_first_nan_of_a_fused_region_has_its_own_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NAN], env={**os.environ, "MGE_CHECK_PROGRAMS": "nan"}, capture_output=True, text=True
    )
    assert "log" in done.stdout and "<string>:8" in done.stdout and "<string>:9" not in done.stdout, done.stdout


def test_names_of_inputs_are_told(tmp_path: pathlib.Path) -> None:
    f = FAILURES["an_index"]
    net = GraphInference(str(dumped(Failure(lambda x, i: x[i], f.good, f.bad, "", "", ""), tmp_path)))
    text = told(lambda arrays: net.run(inp_dict={f"in{i}": a for i, a in enumerate(arrays)}), f.bad)
    assert "in0: float32[4,3]" in text, text


def test_a_gradient_that_fails_has_the_line_of_its_op() -> None:
    class Bad(mge.autodiff.Function):
        def forward(self, x: Tensor, i: Tensor) -> Tensor:
            self.i = i
            return x * 2

        def backward(self, g: Tensor) -> Any:
            return F.broadcast_to(F.sum(g[self.i]), (4, 3)), None

    w = mge.Parameter(TABLE)
    gm = mge.autodiff.GradManager().attach([w])

    @trace(symbolic=True)
    def step(i: Tensor) -> Tensor:
        with gm:
            y = Bad()(w, i)
            gm.backward(F.sum(y))
        return w.grad

    for _ in range(2):
        step(Tensor(ints(0, 3))).numpy()
    with pytest.raises(IndexError) as e:
        step(Tensor(ints(0, 9))).numpy()
    assert HERE in str(e.value), str(e.value)
