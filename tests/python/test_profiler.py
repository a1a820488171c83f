"""megengine.utils.profiler: what ran, when, for which line, on which thread, with how much memory."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.core import set_option
from megengine.jit import trace
from megengine.utils.profiler import Profiler, is_profiling, merge_trace_events, profile, scope


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what nobody dumped is written when it is forgotten


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = M.Linear(4, 3)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.relu(self.fc(x))  # in the module


def ops(p: Profiler) -> list[dict[str, Any]]:
    return [e for e in p.events() if e.get("cat") == "op"]


def line_of(text: str) -> int:
    """Where in this file the marked line is."""
    lines = pathlib.Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line and "line_of" not in line)


def in_module(e: dict[str, Any]) -> bool:
    return f":{line_of('# in the module')} in Net.forward" in e["args"]["line"]


def test_every_op_has_line_shapes_and_time(tmp_path: pathlib.Path) -> None:
    x = mge.tensor(np.ones((2, 4), "float32"))
    with Profiler(str(tmp_path)) as p:
        y = F.exp(x) + x  # two ops on one line
    exp, add = ops(p)
    assert (exp["name"], add["name"]) == ("exp", "add")
    assert exp["args"]["tensors"] == "float32[2,4] -> float32[2,4]"
    assert add["args"]["tensors"] == "float32[2,4] float32[2,4] -> float32[2,4]"
    for e in (exp, add):
        assert re.fullmatch(rf".*test_profiler\.py:{line_of('# two ops on one line')} in test_.*", e["args"]["line"])
        assert e["dur"] > 0
    assert 0 <= exp["ts"] and exp["ts"] + exp["dur"] <= add["ts"]
    np.testing.assert_allclose(y.numpy(), np.exp(1) + 1, rtol=1e-6)


def test_memory_counter_tells_what_is_allocated() -> None:
    with Profiler() as p:
        before = mge.get_allocated_memory()
        big = F.zeros((1024, 1024))
        after = mge.get_allocated_memory()
    counts = [e["args"]["allocated"] for e in p.events() if e["ph"] == "C"]
    assert max(counts) >= before + 4 * 2**20 and max(counts) <= after
    assert big.shape == (1024, 1024)


def test_backward_and_optimizer_are_there_with_the_forward_line() -> None:
    net = Net()
    gm = GradManager().attach(net.parameters())
    opt = mge.optimizer.SGD(net.parameters(), lr=0.1)
    x = mge.tensor(np.ones((2, 4), "float32"))
    with Profiler() as p:
        with gm:
            loss = net(x).sum()
            gm.backward(loss)
        opt.step()
    called = {(e["name"], e["args"]["line"].endswith("(backward)")) for e in ops(p) if in_module(e)}
    assert {("matmul", False), ("relu", False), ("matmul", True), ("relu_grad", True)} <= called
    assert [e["name"] for e in ops(p)].count("sgd_update") == 2


def ends(e: dict[str, Any]) -> float:
    return float(e["ts"] + e["dur"])


@pytest.mark.parametrize("without_host", (False, True))
def test_compiled_programs_show_their_instructions(without_host: bool) -> None:
    net = Net()

    @trace(symbolic=True, without_host=without_host)
    def step(x: mge.Tensor) -> mge.Tensor:
        return net(x) * 2

    x = mge.tensor(np.ones((2, 4), "float32"))
    for _ in range(3):
        want = step(x).numpy()
    with Profiler() as p:
        got = step(x).numpy()
    np.testing.assert_array_equal(got, want)
    programs = [e for e in ops(p) if e["name"] == "program"]
    matmul = next(e for e in ops(p) if e["name"] == "matmul_fused")  # with the sum and * 2
    assert in_module(matmul) and any(q["ts"] <= matmul["ts"] and ends(matmul) <= ends(q) + 0.001 for q in programs)


def test_queued_ops_are_on_the_lane_of_the_worker() -> None:
    x = mge.tensor(np.ones((2, 4), "float32"))
    set_option("executor", 1)
    try:
        with Profiler() as p, scope("outer"):
            y = x * 2
    finally:
        set_option("executor", 0)
    (mul,) = ops(p)
    outer, end = [e for e in p.events() if e.get("cat") == "scope"]
    assert (outer["ph"], end["ph"]) == ("B", "E")
    assert mul["tid"] != outer["tid"] and mul["args"]["scope"] == "outer"
    names = {e["tid"]: e["args"]["name"] for e in p.timeline()["traceEvents"] if e["name"] == "thread_name"}
    assert names[mul["tid"]] == "executor" and names[outer["tid"]] == "main"
    assert y.numpy()[0, 0] == 2


def test_threads_have_lanes_of_their_own() -> None:
    def work() -> None:
        F.exp(mge.tensor([1.0]))

    with Profiler() as p:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        F.log(mge.tensor([1.0]))
    tid = {e["name"]: e["tid"] for e in ops(p)}
    assert tid["exp"] != tid["log"]


def test_scopes_of_modules_and_of_the_program() -> None:
    net = Net()
    x = mge.tensor(np.ones((2, 4), "float32"))
    call = M.Module.__call__
    with Profiler(with_scopes=True) as p, scope("eval"):
        net(x)
    assert M.Module.__call__ is call
    matmul = next(e for e in ops(p) if e["name"] == "matmul")
    assert matmul["args"]["scope"] == "eval.Net.fc"
    scopes = [e for e in p.events() if e.get("cat") == "scope"]
    assert [e["name"] + e["ph"] for e in scopes] == ["evalB", "NetB", "fcB", "fcE", "NetE", "evalE"]
    assert [e["ts"] for e in scopes] == sorted(e["ts"] for e in scopes)
    assert os.path.exists(p.path)  # written at the end of the block


def test_errors_name_the_scope() -> None:
    x = mge.tensor(np.ones((2, 4), "float32"))
    with scope("net"), scope("conv1"), pytest.raises(RuntimeError, match=r"in scope net\.conv1"):
        F.matmul(x, x)
    with pytest.raises(RuntimeError) as outside:
        F.matmul(x, x)
    assert "scope" not in str(outside.value)


def test_late_errors_name_the_scope_they_were_called_in() -> None:
    index = mge.tensor(np.full(100, 5), dtype="int32")  # too many to be looked at by the caller
    set_option("executor", 1)
    try:
        with scope("embedding"):
            y = F.one_hot(index, 2)
        with pytest.raises(RuntimeError, match="in scope embedding"):
            y.numpy()
    finally:
        set_option("executor", 0)


def test_a_failed_op_is_recorded_and_recording_goes_on() -> None:
    with Profiler() as p:
        with pytest.raises(IndexError):
            F.one_hot(mge.tensor([5], dtype="int32"), 2)
        F.exp(mge.tensor([1.0]))
    assert [e["name"] for e in ops(p)][-1] == "exp"


def test_nothing_is_recorded_when_off() -> None:
    p = Profiler()
    with p:
        F.exp(mge.tensor([1.0]))
    F.log(mge.tensor([1.0]))
    assert [e["name"] for e in ops(p)] == ["exp"] and not is_profiling()
    p.start()
    assert is_profiling()
    p.stop()
    assert ops(p) == []  # start forgets


def test_a_second_profiler_stops_the_first() -> None:
    first, second = Profiler(), Profiler()
    first.start()
    F.exp(mge.tensor([1.0]))
    second.start()
    F.log(mge.tensor([1.0]))
    second.stop()
    assert [e["name"] for e in ops(first)] == ["exp"] and [e["name"] for e in ops(second)] == ["log"]


def test_files_and_merging(tmp_path: pathlib.Path) -> None:
    p = Profiler(str(tmp_path), formats=["chrome_timeline.json", "memory_flow.svg"])
    with p:
        F.exp(mge.tensor([1.0]))
    p.dump()
    assert pathlib.Path(p.path).parent == pathlib.Path(p.directory) == tmp_path
    file = json.loads(pathlib.Path(p.path).read_text())
    assert [e["name"] for e in file["traceEvents"] if e.get("cat") == "op"] == ["exp"]
    svg = pathlib.Path(p.path.replace("chrome_timeline.json", "memory_flow.svg")).read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    other = dict(file, traceEvents=[dict(e, pid=1) for e in file["traceEvents"]])
    (tmp_path / "1.chrome_timeline.json").write_text(json.dumps(other))
    merge_trace_events(str(tmp_path))
    merged = json.loads((tmp_path / "merge.chrome_timeline.json").read_text())["traceEvents"]
    assert {e["pid"] for e in merged} == {1, p._pid}


def test_decorators(tmp_path: pathlib.Path) -> None:
    @profile(path=str(tmp_path))
    def f(x: mge.Tensor) -> mge.Tensor:
        assert is_profiling()
        return F.exp(x)

    assert f(mge.tensor([0.0])).item() == 1 and not is_profiling()

    @profile
    def g() -> bool:
        return is_profiling()

    assert g()


def test_what_was_not_dumped_is_written_at_exit(tmp_path: pathlib.Path) -> None:
    program = (
        "import megengine as mge\n"
        "from megengine.utils.profiler import Profiler\n"
        f"Profiler({str(tmp_path)!r}).start()\n"
        "mge.tensor([1.0]) + 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    (file,) = tmp_path.iterdir()
    events = json.loads(file.read_text())["traceEvents"]
    assert [e["name"] for e in events if e.get("cat") == "op"] == ["add"]


def test_what_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"unknown format 'html'. There are chrome_timeline.json, memory_flow.svg"):
        Profiler(format="html")
    with pytest.raises(TypeError, match="unknown option 'rate'"):
        Profiler(rate=3)
    with pytest.raises(NotImplementedError, match="enable_cupti"):
        Profiler(enable_cupti=1)
    with pytest.raises(RuntimeError, match="nothing was recorded"):
        Profiler().dump()


def test_merging_an_empty_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no <pid>"):
        merge_trace_events(str(tmp_path))


def test_sample_rate_thins_the_memory_counter() -> None:
    counts = []
    for rate in (0, 4):
        with Profiler(sample_rate=rate) as p:
            x = mge.tensor([1.0])
            for _ in range(8):
                x = F.exp(x)
        counts.append(sum(e["ph"] == "C" for e in p.events()))
    assert counts == [8, 2]


def test_the_example(tmp_path: pathlib.Path) -> None:
    example = pathlib.Path(__file__).resolve().parents[2] / "examples" / "profile_training.py"
    command = [sys.executable, str(example), "--out", str(tmp_path / "out"), "--steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ms of ops per step" in done.stdout and "conv2d" in done.stdout and "Warning" not in done.stderr
    (file,) = (tmp_path / "out").iterdir()
    scopes = {e["args"].get("scope") for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "X"}
    assert {"forward", "backward", "update"} <= scopes


def test_a_forked_child_does_not_record(tmp_path: pathlib.Path) -> None:
    with Profiler() as p:
        F.exp(mge.tensor([1.0]))
        pid = os.fork()
        if pid == 0:  # ends without a word of what it does here, and without a file
            F.log(mge.tensor([1.0]))
            os._exit(0 if mge.core._core.profile_events() == [] else 1)
        assert os.waitpid(pid, 0)[1] == 0
        F.sin(mge.tensor([1.0]))
    assert [e["name"] for e in ops(p)] == ["exp", "sin"]
