"""The command lines of megengine.tools: what they print, files they write, and mistakes in one line."""

from __future__ import annotations

import json
import pickle
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.core.tensor.megbrain_graph as G
import megengine.functional as F
import megengine.module as M
from megengine.core.ops import builtin
from megengine.jit import trace
from megengine.tools import _mge, accuracy_shake_var_tree, compare_binary_iodump, draw_graph, graph_info_analyze
from megengine.tools.network_visualize import visualize
from megengine.utils.profile_analyzer import NonExistNum, OprProfRst, ProfileAnalyzer, Record, TimeFuncHelper
from megengine.utils.profiler import Profiler, profile_timeline
from megenginelite import LiteNetwork

IMAGE = np.random.RandomState(0).rand(2, 3, 8, 8).astype("float32")


@pytest.fixture(scope="module")
def net() -> M.Module:
    return M.Sequential(M.Conv2d(3, 4, 3, bias=False), M.ReLU(), M.MaxPool2d(2, 2))


@pytest.fixture(scope="module")
def model(net: M.Module, tmp_path_factory: pytest.TempPathFactory) -> str:
    fc = M.Linear(36, 5)

    @trace(symbolic=True, capture_as_const=True)
    def infer(data: Any) -> Any:
        return F.softmax(fc(F.flatten(net(data), 1)))

    infer(mge.tensor(IMAGE))
    path = tmp_path_factory.mktemp("model") / "net.mge"
    infer.dump(str(path), arg_names=["data"], output_names=["prob"])
    return str(path)


@pytest.fixture(scope="module")
def lite_profile(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "net.json"
    network = LiteNetwork()
    network.load(model)
    network.enable_profile_performance(str(path))
    network.get_io_tensor("data").set_data_by_copy(IMAGE)
    network.forward()
    network.wait()
    return path


def tool(name: str, *args: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"megengine.tools.{name}", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


# ---- profiles


def test_the_profile_has_what_the_format_asks_for(lite_profile: Path) -> None:
    profile = json.loads(lite_profile.read_text())
    graph, profiler = profile["graph_exec"], profile["profiler"]
    assert set(graph["comp_seq"]) <= set(graph["operator"])
    assert not set(graph["operator"]) & set(graph["var"])  # numbered together
    for op in graph["operator"].values():
        assert {"node_type", "id", "name", "type", "extra", "input", "output"} <= set(op)
        assert all(v in graph["var"] for v in op["input"] + op["output"])
    last = 0.0
    for key in graph["comp_seq"]:
        (times,) = profiler["device"][key].values()
        assert last <= times["start"] <= times["kern"] <= times["end"]
        last = times["end"]
    conv = next(k for k, op in graph["operator"].items() if op["type"].startswith("conv2d"))
    footprint = profiler["opr_footprint"][conv]
    assert footprint["in_shapes"][0] == [2, 3, 8, 8] and footprint["out_shapes"] == [[2, 4, 6, 6]]
    assert footprint["computation"] >= 2 * 2 * 4 * 36 * 27  # multiply-adds as two


def test_a_trace_is_watched_and_costs_nothing_before() -> None:
    fn = trace(lambda x: F.exp(x) + F.matmul(x, x), without_host=True)
    x = mge.tensor(np.ones((4, 4), "float32"))
    for _ in range(3):
        fn(x)
    recording = fn._require_recording("test").recording
    assert json.loads(recording.profile())["profiler"]["device"] == {}
    recording.watch(True)
    fn(x)
    profile = json.loads(recording.profile())
    assert set(profile["profiler"]["device"]) == set(profile["graph_exec"]["comp_seq"])
    recording.watch(False)
    fn(x)
    assert json.loads(recording.profile())["profiler"]["device"] == {}


def sample() -> dict[str, Any]:
    ops = {}
    profiler: dict[str, Any] = {"device": {}, "host": {}, "opr_footprint": {}}
    for i, (kind, begin, end) in enumerate([("conv", 1.0, 3.0), ("add", 3.0, 4.0), ("add", 4.0, 4.5), ("view", 0, 0)]):
        id = str(i)
        ops[id] = {
            "node_type": "operator",
            "id": id,
            "name": f"n{i}",
            "type": kind,
            "extra": {},
            "input": [],
            "output": [],
        }
        if kind == "view":
            continue
        profiler["device"][id] = {"cpu0": {"start": begin, "kern": begin + 0.25, "end": end}}
        profiler["host"][id] = {"main": {"start": begin, "kern": begin, "end": begin + 0.5}}
        computation = None if i == 2 else 8
        profiler["opr_footprint"][id] = {
            "memory": 16,
            "computation": computation,
            "in_shapes": [[1]],
            "out_shapes": [[1]],
        }
    return {"graph_exec": {"operator": ops, "var": {}, "comp_seq": ["0", "1", "2"]}, "profiler": profiler}


def test_questions_to_a_profile() -> None:
    p = ProfileAnalyzer(sample())
    time = TimeFuncHelper.eval_time_func("device", "end", max)
    conv, add, other = p.select(time)
    assert (conv.time, conv.flops, conv.bandwidth, conv.opr_id) == (2.0, 4.0, 8.0, 0)
    assert str(other.flops) == "N/A" and other.bandwidth == 32.0
    assert [r.time for r in p.select(TimeFuncHelper.eval_time_func("device", "kern", max))] == [0.25] * 3
    assert [r.time for r in p.select(TimeFuncHelper.min_start_func("device", "end", max))] == [1.0, 3.0, 4.0]
    assert [r.time for r in p.select(TimeFuncHelper.max_end_func("host", "end", max))] == [1.5, 3.5, 4.5]
    assert p.select(TimeFuncHelper.eval_time_func("gpu", "end", max)) == []
    both = p.select(time, aggregate=sum, aggregate_by="type", sort_by="+time")
    assert [(dict(r.info), r.time) for r in both] == [
        ({"type": "add", "count": 2, "id": "N/A"}, 1.5),
        ({"type": "conv", "count": 1, "id": "N/A"}, 2.0),
    ]
    (every,) = p.select(time, aggregate="mean")  # type: ignore[arg-type]
    assert dict(every.info) == {"type": "all", "count": 3, "id": "N/A"} and every.time == pytest.approx(3.5 / 3)
    assert [r.info["id"] for r in p.select(time, sort_by="flops", top_k=2)] == ["2", "1"]  # what is missing is greatest
    assert [r.info["id"] for r in p.select(time, lambda op: op.opr_info["type"] == "conv")] == ["0"]
    only = ProfileAnalyzer(sample(), lambda op, inputs, outputs: op["type"] == "add")
    assert len(only.select(time)) == 2
    with pytest.raises(AssertionError, match="must specify aggregate op"):
        p.select(time, aggregate_by="type")
    with pytest.raises(KeyError):
        ProfileAnalyzer({})


def test_numbers_that_are_missing() -> None:
    n = NonExistNum()
    assert n > 1e300 and not n < 1 and n == NonExistNum() and n != 1 and n + 3 == 3 and sum([n, 1]) == 1
    assert max(3, n) is n and min(3, n) == 3 and n / 2 == n and str(n) == repr(n) == "N/A"
    r = Record(2.0, {"name": "a"}, {"computation": 4})
    assert r.flops == 2.0 and r.get_column_by_name() == 2.0 and str(r.get_column_by_name("bandwidth")) == "N/A"
    rst = OprProfRst(sample()["graph_exec"]["operator"]["0"])
    assert dict(rst.opr_info or {}) == {"name": "n0", "type": "conv", "id": "0"}


def test_profile_analyze(lite_profile: Path, tmp_path: Path) -> None:
    done = tool("profile_analyze", lite_profile, "-t", 2, "--show-host")
    assert done.returncode == 0 and "total device time" in done.stdout and "host self time" in done.stdout
    assert len(re.findall(r"^#\d", done.stdout, re.M)) == 4
    path = tmp_path / "p.json"
    path.write_text(json.dumps(sample()))
    done = tool("profile_analyze", path, "--aggregate-by", "type", "--aggregate", "sum", "--print-only", "device")
    assert [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("#")][1:] == [
        ["#0", "2"],
        ["#1", "1.5"],
    ]
    done = tool("profile_analyze", path, "--dump-only-opr", "--opr-name", "n[01]", "--order-by", "+time")
    assert done.stdout.splitlines()[-2:] == ["n1 add 1", "n0 conv 0"]
    assert "| #0 |" in tool("profile_analyze", path, "--wiki", "--type", "conv").stdout
    assert "#0" not in tool("profile_analyze", path, "--min-time", 5, "--print-only", "device").stdout


# ---- timelines


def check_trace(file: dict[str, Any]) -> list[dict[str, Any]]:
    """The rules of the Trace Event Format that viewers rely on, by a parser of its own; gives the complete events."""
    spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
    pairs: dict[tuple[int, int], list[str]] = {}
    before: dict[tuple[int, int], float] = {}
    named, complete = set(), []
    for e in file["traceEvents"]:
        assert isinstance(e["name"], str) and isinstance(e["pid"], int) and e["ph"] in "XMCBEi", e
        if e["ph"] == "M":
            assert e["name"] in ("thread_name", "process_name") and isinstance(e["args"]["name"], str)
            if e["name"] == "thread_name":
                named.add((e["pid"], e["tid"]))
            continue
        assert isinstance(e["ts"], (int, float)) and e["ts"] >= 0, e
        if e["ph"] == "C":
            assert e["args"] and all(isinstance(v, (int, float)) for v in e["args"].values()), e
        if e["ph"] in "BE":  # pairs, in order of time on each lane
            lane = (e["pid"], e["tid"])
            assert before.get(lane, 0) <= e["ts"]
            before[lane] = e["ts"]
            if e["ph"] == "B":
                pairs.setdefault(lane, []).append(e["name"])
            else:
                assert pairs[lane].pop() == e["name"]
        if e["ph"] == "X":
            assert isinstance(e["dur"], (int, float)) and e["dur"] >= 0 and isinstance(e["tid"], int), e
            spans.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
            complete.append(e)
    assert set(spans) | set(pairs) <= named and not any(pairs.values())  # every lane has a name, every scope an end
    for spans_ in spans.values():  # what overlaps is inside: a viewer stacks it
        open_: list[float] = []
        for begin, end in sorted(spans_, key=lambda s: (s[0], -s[1])):
            while open_ and open_[-1] <= begin + 1e-3:
                open_.pop()
            assert not open_ or end <= open_[-1] + 1e-3, (begin, end, open_)
            open_.append(end)
    assert file["displayTimeUnit"] in ("ms", "ns")
    return complete


def test_timelines_of_eager_graph_and_lite_follow_the_format(tmp_path: Path, lite_profile: Path, net: M.Module) -> None:
    fn = trace(lambda x: F.exp(net(x)), without_host=True)
    x = mge.tensor(IMAGE)
    for _ in range(2):
        fn(x)
    p = Profiler(str(tmp_path), with_scopes=True)
    with p:
        F.relu(net(x))  # eager
        fn(x)  # compiled
    p.dump()
    events = check_trace(json.loads(Path(p.path).read_text()))
    names = [e["name"] for e in events]
    assert "conv2d" in names and "program" in names and "relu" in names
    lines = [e["args"].get("line", "") for e in events if e.get("cat") == "op"]
    assert all("test_tools.py" in line or "megengine" in line for line in lines if line) and any(lines)
    assert any(e["ph"] == "C" for e in json.loads(Path(p.path).read_text())["traceEvents"])
    lite = check_trace(profile_timeline(json.loads(lite_profile.read_text())))
    conv = next(e for e in lite if e["name"].startswith("conv2d"))
    assert "float32[2,3,8,8]" in conv["args"]["tensors"] and conv["args"]["kernel"]
    done = tool("profiler", "--from_profile", lite_profile, "-o", tmp_path / "lite")
    assert done.returncode == 0
    check_trace(json.loads((tmp_path / "lite" / "net.chrome_timeline.json").read_text()))


def test_profiler_runs_scripts_and_modules(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(
        "import sys\nimport megengine as mge\nprint(sys.argv, __name__)\n"
        "y = mge.functional.exp(mge.tensor([1.0]))\nsys.exit(0)\n"
    )
    out = tmp_path / "out"
    done = tool("profiler", "-o", out, "-f", "chrome_timeline.json", "-f", "memory_flow.svg", script, "--flag", "7")
    assert done.returncode == 0, done.stderr
    assert f"['{script}', '--flag', '7'] __main__" in done.stdout
    assert sorted(p.suffix for p in out.iterdir()) == [".json", ".svg"]
    done = tool("profiler", "-o", out, "--merge_trace_events")
    assert done.returncode == 0 and (out / "merge.chrome_timeline.json").exists()
    assert tool("profiler", "-o", out, "--clean").returncode == 0 and not list(out.iterdir())


def test_profiler_tells_the_errors_of_a_script_as_python_does(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text("def f():\n    raise ValueError('of the script')\nf()\n")
    done = tool("profiler", "-o", tmp_path / "out", script)
    assert done.returncode == 1 and list((tmp_path / "out").iterdir())
    error = [line for line in done.stderr.splitlines() if not re.search(r"\d\d:\d\d:\d\d", line)]
    assert error[0].startswith("Traceback") and error[-1] == "ValueError: of the script"
    assert "work.py" in error[1] and "line 3" in error[1] and "runpy" not in done.stderr, done.stderr
    done = tool("profiler", "-m", "no.such_module")
    assert done.returncode == 1 and done.stderr == "profiler: there is no module no.such_module\n"


# ---- models


def test_load_network_and_run(model: str, tmp_path: Path) -> None:
    data, profile = tmp_path / "in.pkl", tmp_path / "p.json"
    data.write_bytes(pickle.dumps({"data": IMAGE}))
    network = LiteNetwork()
    network.load(model)
    network.get_io_tensor("data").set_data_by_copy(IMAGE)
    network.forward()
    network.wait()
    prob = network.get_io_tensor("prob").to_numpy()
    rms = float(np.sqrt((prob.astype("float64") ** 2).mean()))
    done = tool(
        "load_network_and_run", model, "--load-input-data", data, "--calc-output-rms", "--iter", 2, "--warm-up", 1,
        "--profile", profile, "--get-static-mem-info", tmp_path / "mem", "--log", tmp_path / "log",
    )  # fmt: skip
    text = done.stdout + done.stderr
    assert done.returncode == 0 and f"output_rms=[{rms:.6g}]" in text and "iter 1:" in text, text
    assert json.loads(profile.read_text())["profiler"]["device"]
    assert {"graph.json", "StaticMemoryInfo.json"} == {p.name for p in (tmp_path / "mem").iterdir()}
    assert "iter 1:" in (tmp_path / "log").read_text()
    # the same numbers in the file
    embedded = tmp_path / "with_input.mge"
    done = tool("load_network_and_run", model, "--load-input-data", data, "--dump-cpp-model", embedded)
    assert done.returncode == 0, done.stderr
    done = tool("load_network_and_run", embedded, "--calc-output-rms")
    assert f"output_rms=[{rms:.6g}]" in done.stdout + done.stderr
    # other sizes, other random numbers, other outputs, options
    for args, expected in [
        (["--batchsize", 4], "(4, 3, 8, 8)"),
        (["--input-desc", "data:1,3,8,8"], "(1, 3, 8, 8)"),
        (["--rng", "data:randint(low=0,high=2,size={})", "--seed", 3], "iter 0"),
        (["-d", "multithread2:0", "--reproducible", "-v"], "iter 0"),
        (["--fast-run", "--reproducible", "--warm-up", 1], "iter 0"),
        (["--optimize-for-inference", "--enable-fuse-conv-bias-nonlinearity", "--weight-preprocess"], "iter 0"),
    ]:
        done = tool("load_network_and_run", model, *args)
        assert done.returncode == 0 and expected in done.stdout + done.stderr, (args, done)


def test_network_visualize(model: str, tmp_path: Path) -> None:
    total, details = visualize(model, "", input=IMAGE)
    conv = next(row for row in details.flops if row.get("class_name", "").startswith("Conv"))
    assert conv["flops_num"] == 2 * 4 * 36 * 27
    weights = {row["shape"]: row for row in details.params if "shape" in row}
    assert weights[(4, 3, 3, 3)]["param_dim"] == 108 and (5, 36) in weights
    assert total.param_size >= 4 * (108 + 180 + 5)
    data = next(row for row in details.activations if row["name"] == "data")
    assert data["mean"] == f"{IMAGE.mean():.3f}"
    done = tool("network_visualize", model, "--all", "--log_path", tmp_path / "log")
    assert done.returncode == 0, done.stderr
    assert "flops stats" in done.stdout + done.stderr
    (events,) = (tmp_path / "log").iterdir()
    graph, texts = read_events(events)
    assert any(n.op.startswith("Convolution") for n in graph.node)
    known = {n.name for n in graph.node}
    assert all(i in known for n in graph.node for i in n.input)
    assert any("total_flops" in s for s in texts)


def read_events(path: Path) -> tuple[Any, list[str]]:
    """The graph and the texts in a file of TensorBoard: records of length, checksum, data, checksum."""
    from tensorboardX.proto import event_pb2, graph_pb2

    data, at, graph, texts = path.read_bytes(), 0, graph_pb2.GraphDef(), []
    while at < len(data):
        (n,) = struct.unpack("<Q", data[at : at + 8])
        event = event_pb2.Event.FromString(data[at + 12 : at + 12 + n])
        at += 16 + n
        if event.graph_def:
            graph = graph_pb2.GraphDef.FromString(event.graph_def)
        for value in event.summary.value:
            texts += [s.decode() for s in value.tensor.string_val]
    return graph, texts


def test_graph_info_analyze(model: str, tmp_path: Path) -> None:
    network = LiteNetwork()
    network.load(model)
    network.get_static_memory_alloc_info(str(tmp_path / "mem"))
    info = json.loads((tmp_path / "mem" / "StaticMemoryInfo.json").read_text())
    facts = graph_info_analyze.analyze(info)
    spans = [
        (int(c["logic_addr_begin"]), int(c["logic_addr_end"]))
        for c in info["chunk"].values()
        if c["type"] == "static_mem"
    ]
    assert facts["PEAK_MEMORY_SIZE"] == max(e for _, e in spans)
    assert facts["WEIGHT_MEMORY_SIZE"] >= 4 * (108 + 180)
    done = tool("graph_info_analyze", "-i", tmp_path / "mem", "-o", tmp_path / "log")
    assert done.returncode == 0 and "peak" in done.stdout, done.stderr
    (events,) = (tmp_path / "log").iterdir()
    graph, _ = read_events(events)
    assert any(n.op.startswith("conv2d") for n in graph.node)


def test_draw_graph(lite_profile: Path, tmp_path: Path) -> None:
    out = tmp_path / "g.dot"
    done = tool("draw_graph", "-i", lite_profile, "-o", out, "--profile", lite_profile, "--opr-attr", "stride")
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert text.startswith("digraph") and "conv2d" in text and " us" in text and "stride: [1, 1]" in text
    declared = set(re.findall(r'^  "(\w+)" \[', text, re.M))
    used = {n for edge in re.findall(r'"(\w+)" -> "(\w+)"', text) for n in edge}
    assert used <= declared and len(used) > 4
    graph = json.loads(lite_profile.read_text())["graph_exec"]
    conv = next(k for k, op in graph["operator"].items() if op["type"].startswith("conv2d"))
    part = draw_graph.dot(graph, [conv])
    assert "softmax" not in part and "conv2d" in part
    assert draw_graph.dot(graph, [conv], depth=1).count("shape=box") == 1
    made = G.Graph()
    x = made.make_h2d(dtype="float32", shape=(2,), name="x")
    made.compile(*G.apply_normal_varnode(builtin.Elemwise("exp"), x))._to_json(tmp_path / "made.json")
    assert tool("draw_graph", "-i", tmp_path / "made.json", "-o", out).returncode == 0 and "exp" in out.read_text()
    assert draw_graph.dot(graph, prune=True).count("->") <= draw_graph.dot(graph).count("->")


# ---- dumped values


def dump(path: Path, name: str, value: Any) -> None:
    sizes = [*value.shape, *[0] * (7 - value.ndim)]
    head = struct.pack("<3I7I", len(name), 0, 7, *sizes)
    path.write_bytes(head + name.encode() + value.astype("float32").tobytes())


def test_where_two_runs_begin_to_differ(tmp_path: Path) -> None:
    one = np.ones((2, 2))
    for folder, y in (("a", one), ("b", one * 1.1)):
        (tmp_path / folder).mkdir()
        text = "var={{id:{},shape:{{2,2}},Float32,owner:{}(Elemwise),name:{}}} owner_opr_inputs=[{}]"
        dump(tmp_path / folder / "000000", text.format(1, "x", "x", ""), one)
        dump(tmp_path / folder / "000001", text.format(2, "y", "y", "{id:1,name:x}, "), y)
        dump(tmp_path / folder / "000002", text.format(3, "z", "z", "{id:2,name:y}, "), y)
    done = tool("compare_binary_iodump", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1 and done.stdout.count("not equal") == 2
    assert tool("compare_binary_iodump", tmp_path / "a", tmp_path / "b", "-e", 0.2).returncode == 0
    assert tool("compare_binary_iodump", tmp_path / "a", tmp_path / "b", "-s").stdout.count("not equal") == 1
    log = tmp_path / "log.txt"
    log.write_text(done.stdout)
    (root,) = accuracy_shake_var_tree.parse(str(log))
    assert (root.id, root.dependence_list) == (2, [1])
    assert "id:2" in tool("accuracy_shake_var_tree", log).stdout
    with pytest.raises(AssertionError, match=r"err=0.0909"):
        compare_binary_iodump.check(one, one * 1.1, "y", 1e-3)
    with pytest.raises(AssertionError, match="shape mismatch"):
        compare_binary_iodump.check(one, np.ones(3), "y", 1e-3)


def test_dumps_of_lite_are_read(model: str, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        network = LiteNetwork()
        network.io_bin_dump(str(tmp_path / folder))
        network.load(model)
        network.get_io_tensor("data").set_data_by_copy(IMAGE if folder == "a" else IMAGE * 2)
        network.forward()
        network.wait()
    done = tool("compare_binary_iodump", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1
    log = tmp_path / "log.txt"
    log.write_text(done.stdout)
    (root,) = accuracy_shake_var_tree.parse(str(log))
    assert "conv2d" in root.src_info  # the first that reads the input


@pytest.mark.parametrize("dtype", ["float16", "bool", "uint16", "int64", "float64", "int8", "float32"])
def test_dumps_of_every_dtype_are_read(dtype: str, tmp_path: Path) -> None:
    """Numbers of dtypes that the tool expected and Lite wrote differed for float16, bool and uint16."""

    @trace(symbolic=True, capture_as_const=True)
    def f(x: Any) -> Any:
        return F.concat([x, x], axis=0)

    value = (np.arange(6) % 2).reshape(2, 3).astype(dtype)
    f(mge.Tensor(value, dtype=dtype))
    f.dump(str(tmp_path / "m.mge"), arg_names=["x"], output_names=["y"])
    network = LiteNetwork()
    network.io_bin_dump(str(tmp_path / "out"))
    network.load(str(tmp_path / "m.mge"))
    network.get_io_tensor("x").set_data_by_copy(value)
    network.forward()
    network.wait()
    with (tmp_path / "out/000000").open("rb") as file:
        got, _ = compare_binary_iodump.load_tensor_binary(file)
    assert got.dtype == value.dtype and (got == np.concatenate([value, value])).all()


# ---- the script


def test_mge_script(capsys: pytest.CaptureFixture[str], model: str) -> None:
    for name in (
        *("accuracy_shake_var_tree", "benchmark_op", "compare_binary_iodump", "draw_graph", "graph_info_analyze"),
        *("graph_view", "load_network_and_run", "network_visualize", "profile_analyze", "profiler", "svg_viewer"),
    ):
        assert name in _mge.tools()
    assert _mge.main(["--init"]) == 0
    script = capsys.readouterr().out
    ask = 'COMP_WORDS=(mge prof); COMP_CWORD=1; _mge; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True)
    assert done.stdout.split() == ["profile_analyze", "profiler"], done
    assert _mge.main(["graph_veiw"]) == 2 and "Did you mean graph_view?" in capsys.readouterr().err
    assert _mge.main([]) == 2 and _mge.main(["--help"]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "megengine.tools._mge", "profile_analyze", "none"], capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr == "profile_analyze: there is no file none\n"
    done = subprocess.run([sys.executable, "-m", "megengine.tools", "graph_veiw"], capture_output=True, text=True)
    assert done.returncode == 2 and "Did you mean graph_view?" in done.stderr


def test_a_full_disk_is_told(model: str) -> None:
    """Output that was lost is not success."""
    built = Path(__file__).parents[2] / "build" / "dev" / "bin"
    for line in (
        [built / "load_and_run", model, "--iter", "1"],
        [built / "mge-lite", "show", model],
        [sys.executable, "-m", "megengine", "doctor"],
        [sys.executable, "-m", "megengine.tools", "graph_view", model, "-o", str(Path(model).with_suffix(".html"))],
    ):
        with open("/dev/full", "w") as full:
            done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode in (1, 2) and "No space left on device" in done.stderr, (line, done)
        assert "Traceback" not in done.stderr


def test_svg_viewer_serves_its_page() -> None:
    import urllib.error
    import urllib.request

    command = [sys.executable, "-m", "megengine.tools.svg_viewer", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            with urllib.request.urlopen(url, timeout=30) as page:
                assert b"memory_flow.svg" in page.read()
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(url.replace("svg_viewer.html", "etc/passwd"), timeout=30)
        finally:
            server.terminate()


MISTAKES: list[tuple[str, list[str], int, str]] = [
    ("profile_analyze", ["none.json"], 1, "there is no file none.json"),
    ("profile_analyze", ["{model}"], 1, ""),
    ("profile_analyze", ["{profile}", "--tpo", "3"], 2, "Did you mean --top?"),
    ("profile_analyze", ["{profile}", "--order-by", "size"], 1, "there is no column size"),
    ("profile_analyze", ["{profile}", "--aggregate-by", "type"], 1, "needs --aggregate"),
    ("profile_analyze", ["{profile}", "--opr-name", "("], 1, "no regular expression"),
    ("profile_analyze", ["{profile}", "--type", "Conv"], 1, "the profile has no Conv"),
    ("load_network_and_run", ["none.mge"], 1, "there is no file none.mge"),
    ("load_network_and_run", ["{profile}"], 1, ""),
    ("load_network_and_run", ["{model}", "--focused-nvprof"], 1, "--focused-nvprof"),
    ("load_network_and_run", ["{model}", "--custom-op-lib", "x.so"], 1, "there is no file x.so"),
    ("load_network_and_run", ["{model}", "-d", "gpu0"], 1, "--device"),
    ("load_network_and_run", ["{model}", "--enable-nchw44"], 1, "--optimize-for-inference"),
    ("load_network_and_run", ["{model}", "--rng", "data:__import__('os')"], 1, "--rng"),
    ("load_network_and_run", ["{model}", "--rng", "data:shuffel({{}})"], 1, "draws no 'shuffel'"),
    ("load_network_and_run", ["{model}", "--input-desc", "image:1,3"], 1, "no input 'image'"),
    ("load_network_and_run", ["{model}", "--output-name", "nothing"], 1, "nothing"),
    ("load_network_and_run", ["{model}", "--iter", "0"], 1, "--iter"),
    ("load_network_and_run", ["{model}", "--load-input-data", "{model}"], 1, "no file of arrays"),
    ("network_visualize", ["none.mge"], 1, "there is no file none.mge"),
    ("network_visualize", ["{model}", "--cal_flosp"], 2, "Did you mean --cal_flops?"),
    ("draw_graph", ["-i", "{model}", "-o", "x.dot"], 1, ""),
    ("draw_graph", ["-i", "{profile}", "-o", "x.dot", "-d", "99999"], 1, "no node 99999"),
    ("graph_info_analyze", ["-i", "none", "-o", "log"], 1, "there is no folder none"),
    ("graph_info_analyze", ["-i", "{model}", "-o", "log"], 1, "is a file; a folder is needed"),
    ("compare_binary_iodump", ["{model}", "{model}"], 1, "no dumped tensor"),
    ("accuracy_shake_var_tree", ["{profile}"], 1, "no output of compare_binary_iodump"),
    ("svg_viewer", ["-p", "99999"], 1, "no port"),
    ("profiler", ["none.py"], 1, "there is no file none.py"),
    ("profiler", [], 2, "what to run is missing"),
    ("profiler", ["--from_profile", "{model}"], 1, "no profile of a graph"),
]


@pytest.mark.parametrize("name, args, status, text", MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes_are_one_line(
    name: str, args: list[str], status: int, text: str, model: str, lite_profile: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import importlib

    from megengine.tools._command import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logging.raiseExceptions", False)  # the log goes to what an earlier test captured
    main = importlib.import_module(f"megengine.tools.{name}").main
    given = [a.format(model=model, profile=lite_profile) for a in args]
    try:
        code = run(name, main, given)
    except SystemExit as e:
        code = int(e.code or 0)
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if not re.search(r"\d\d:\d\d:\d\d", line)]  # without the log
    assert code == status and len(lines) == 1 and text in lines[0] and "Traceback" not in error, error


def test_without_pytorch_and_tensorboard_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from megengine.tools import benchmark_op
    from megengine.tools._command import run

    monkeypatch.setitem(sys.modules, "torch", None)
    assert run("benchmark_op", benchmark_op.main, []) == 1
    assert "pip install torch" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.delitem(sys.modules, "megengine.utils.tensorboard", raising=False)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        import megengine.utils.tensorboard  # noqa: F401
