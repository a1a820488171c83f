"""The page of graph_view: its data against NumPy, and the page itself as a user sees it, in headless Chromium."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, png_pixels

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD
from megengine.tools import graph_view
from megengine.traced_module import trace_module


class Block(M.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = M.Conv2d(channels, channels, 3, padding=1)
        self.bn = M.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        return F.relu(self.bn(self.conv(x)) + x)


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = M.Conv2d(3, 8, 3, padding=1)
        self.body = M.Sequential(Block(8), Block(8))
        self.head = M.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.body(F.relu(self.stem(x)))
        return F.softmax(self.head(F.mean(x, (2, 3))))


IMAGE = np.random.RandomState(0).rand(2, 3, 16, 16).astype("float32")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Net()
    net.eval()

    @trace(symbolic=True, capture_as_const=True)
    def infer(data: Any) -> Any:
        return net(data)

    infer(mge.tensor(IMAGE))
    path = tmp_path_factory.mktemp("model") / "net.mge"
    infer.dump(str(path), arg_names=["data"], output_names=["prob"])
    return path


def chain(n: int) -> trace:
    """A program of n ops, some of them with two readers."""

    def body(x: Any) -> Any:
        old = x
        for i in range(n // 4):
            y = F.exp(x) * 0.5
            x = F.matmul(y, y) if i % 50 == 25 else y + old
            old = F.sigmoid(y)
        return x

    fn = trace(body, symbolic=True, capture_as_const=True)
    fn(mge.tensor(np.zeros((4, 4), "float32")))
    return fn


# ---- what it shows


def test_costs_shapes_and_lines_are_those_of_the_ops(model: Path) -> None:
    data = graph_view.describe(str(model))
    nodes = data["views"]["written"]["nodes"]
    values = data["views"]["written"]["values"]
    convs = [n for n in nodes if n["op"] == "conv2d"]
    assert len(convs) == 3
    assert values[convs[0]["outs"][0]]["shape"] == [2, 8, 16, 16]
    macs = 2 * 8 * 16 * 16 * 3 * 9
    assert macs * 2 <= convs[0]["flops"] <= macs * 2 + 2 * 8 * 16 * 16  # with the bias
    assert convs[0]["file"].endswith("test_graph_view.py")
    assert "self.stem(x)" in Path(convs[0]["file"]).read_text().splitlines()[convs[0]["line"] - 1]
    weights = sum(p.size for p in Net().parameters() if p.size > 20)
    assert data["summary"]["params"] >= weights  # equal constants (of the norms) are one


def test_bytes_of_quantised_constants(tmp_path: Path) -> None:
    """A bias of qint32 has four bytes an element, four-bit weights have half a byte."""
    from megengine.core.tensor.dtype import qint4, qint32

    bias = mge.tensor(np.arange(6, dtype="float32")).astype(qint32(1.0))
    small = mge.tensor(np.arange(6, dtype="float32")).astype(qint4(1.0))
    infer = trace(symbolic=True, capture_as_const=True)(lambda x: x + bias.astype("float32") + small.astype("float32"))
    infer(mge.tensor(np.ones(6, "float32")))
    infer.dump(str(tmp_path / "q.mge"), optimize_for_inference=False, no_change_graph=True)
    values = graph_view.describe(str(tmp_path / "q.mge"))["views"]["written"]["values"]
    assert {v["dtype"]: v["bytes"] for v in values if v["kind"] == "const"} == {"qint32": 24, "qint4": 3}


def test_a_training_step_counts_parameters_and_state() -> None:
    w = mge.Parameter(np.ones(5, "float32"))
    gm, opt = GradManager().attach(w), SGD([w], lr=0.1, momentum=0.9)

    @trace(without_host=True)
    def step(x):
        with gm:
            gm.backward((w * x).sum())
        opt.step().clear_grad()

    step(mge.tensor(np.ones(5, "float32")))
    assert graph_view.describe(step)["summary"]["state"]
    infer = trace(without_host=True)(lambda x: w * x)
    infer(mge.tensor(np.ones(5, "float32")))
    assert not graph_view.describe(infer)["summary"]["state"]


def test_buffers_that_live_at_once_do_not_overlap(model: Path) -> None:
    memory = graph_view.describe(str(model))["memory"]
    buffers = memory["buffers"]
    assert buffers
    for i, a in enumerate(buffers):
        assert a["address"] + a["bytes"] <= memory["arena"]
        for b in buffers[:i]:
            together = a["first"] <= b["last"] and b["first"] <= a["last"]
            apart = a["address"] + a["bytes"] <= b["address"] or b["address"] + b["bytes"] <= a["address"]
            assert apart or not together, (a, b)
    alive = [sum(b["bytes"] for b in buffers if b["first"] <= t <= b["last"]) for t in range(len(memory["steps"]))]
    assert max(alive) <= memory["arena"]


def test_fused_ops_know_what_they_were(model: Path) -> None:
    data = graph_view.describe(str(model))
    nodes = data["views"]["written"]["nodes"]
    groups = [[nodes[i]["op"] for i in c["members"]] for c in data["fused"]]
    assert any("conv2d" in g and "relu" in g for g in groups), groups
    owners = [i for c in data["fused"] for i in c["members"]]
    assert len(owners) == len(set(owners))  # an op runs once


def test_times_are_those_of_a_run(model: Path) -> None:
    data = graph_view.describe(str(model), run=3)
    times = [n["time"] for n in data["views"]["run"]["nodes"] if n["kind"] == "op"]
    assert all(t is not None and 0 <= t < 10 for t in times) and sum(times) > 0
    assert data["summary"]["time"] == pytest.approx(sum(n.get("time") or 0 for n in data["views"]["run"]["nodes"]))


def test_a_training_step_and_other_sizes(model: Path) -> None:
    net = Net()
    gm = mge.autodiff.GradManager().attach(net.parameters())
    opt = mge.optimizer.SGD(net.parameters(), lr=0.1)

    @trace(without_host=True)
    def step(x: Any, y: Any) -> Any:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    for _ in range(3):
        step(mge.tensor(IMAGE), mge.tensor(np.zeros(2, "int32")))
    data = graph_view.describe(step)
    assert any(n.get("back") for n in data["views"]["written"]["nodes"])
    assert data["memory"]["arena"] > 0
    wide = graph_view.describe(str(model), shapes={"data": (1, 3, 32, 32)})
    convs = [n for n in wide["views"]["written"]["nodes"] if n["op"] == "conv2d"]
    assert wide["views"]["written"]["values"][convs[0]["outs"][0]]["shape"] == [1, 8, 32, 32]


def test_a_pickled_traced_module(tmp_path: Path) -> None:
    net = Net()
    net.eval()
    path = tmp_path / "net.pkl"
    mge.save(trace_module(net, mge.tensor(IMAGE)), str(path))
    data = graph_view.describe(str(path), run=2)
    assert [n["op"] for n in data["views"]["written"]["nodes"]].count("conv2d") == 3
    assert data["summary"]["time"] > 0


ORIGINAL = Path(__file__).resolve().parents[1] / "data" / "original"


@pytest.mark.parametrize("name", ["attention.v2.mge", "conv8.v2ohwcd4.mge", "dynamic_reshape.v2.mge"])
def test_files_of_the_original(name: str, tmp_path: Path) -> None:
    data = graph_view.describe(str(ORIGINAL / name), run=2)
    assert data["summary"]["ops"] > 0
    assert any(n.get("time") for n in data["views"]["written"]["nodes"])
    graph_view.write(str(ORIGINAL / name), tmp_path / "page.html")


def test_a_page_needs_nothing_else_and_data_cannot_break_out(tmp_path: Path) -> None:
    def sinister(x: Any) -> Any:
        return x + 1

    fn = trace(sinister, symbolic=True, capture_as_const=True)
    fn(mge.tensor([1.0]))
    page = tmp_path / "p.html"
    graph_view.write(fn, page, title="</script><script>alert(1)</script> & <b>")
    text = page.read_text("utf-8")
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", text) and "import(" not in text
    assert "<script>alert(1)" not in text
    assert text.count("</script>") == 2


# ---- bad input


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "megengine.tools.graph_view", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_the_command_and_its_mistakes(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run(str(model), "-o", str(page), "--run", "2")
    assert done.returncode == 0 and page.exists() and "page.html" in done.stdout
    (tmp_path / "text.mge").write_text("this is no model")
    (tmp_path / "cut.mge").write_bytes(model.read_bytes()[:200])
    (tmp_path / "list.json").write_text("{}")
    for args, status, text in [
        ([str(tmp_path / "none.mge")], 1, "there is no file"),
        ([str(tmp_path / "text.mge")], 1, ""),
        ([str(tmp_path / "cut.mge")], 1, ""),
        ([str(tmp_path / "list.json")], 1, "no profile"),
        ([str(tmp_path)], 1, "is a folder"),
        ([str(model), "--outptu", "x"], 2, "Did you mean --output?"),
        ([str(model), "--input-desc", "data"], 1, "--input-desc"),
        ([str(model), "--input-desc", "image:1,3,8,8"], 1, "no input 'image'"),
        ([str(model), "-o", str(tmp_path / "no" / "page.html")], 1, ""),
    ]:
        done = run(*args)
        assert done.returncode == status, (args, done)
        assert done.stderr.count("graph_view:") == 1
        assert text in done.stderr and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done.stderr


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(TypeError, match="trace or a TracedModule"):
        graph_view.describe(Net())
    with pytest.raises(ValueError, match="not been called"):
        graph_view.describe(trace(lambda x: x))


# ---- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as b:
        yield b


def colors(png: bytes) -> int:
    _, _, rows = png_pixels(png)
    return len({row[i : i + 3] for row in rows[::7] for i in range(0, len(row), 21)})


def test_a_user_looks_at_a_model(browser: Browser, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "net.html"
    graph_view.write(str(model), page, run=2)
    browser.open(page)
    assert colors(browser.screenshot()) > 20  # not blank

    # search: typed as a user does, found, marked, and gone to
    browser.js("document.getElementById('search').focus()")
    browser.type("conv2d")
    assert browser.js("graphView.found.length") == 3
    assert browser.js("graphView.pane.matches.size") >= 1
    assert "conv2d" in browser.js("document.getElementById('results').innerText")
    browser.press("Enter", 13)
    assert browser.js("graphView.graph.nodes[graphView.pane.selected.ref.node].op") == "conv2d"
    browser.press("Escape", 27)
    assert browser.js("graphView.pane.matches.size") == 0

    # a click on a box: shapes, line and cost beside it
    node = browser.js("graphView.graph.nodes.findIndex(n => n.op === 'conv2d')")
    browser.js(f"graphView.pane.goTo({node}); graphView.pane.select(null)")
    browser.frame()
    browser.click(*browser.js(f"graphView.pane.place({node})"))
    details = browser.js("document.getElementById('details').innerText")
    for text in ("conv2d", "2×3×16×16", "2×8×16×16", "test_graph_view.py:", "Measured", "FLOP"):
        assert text in details, (text, details)

    # zoom and pan
    before = browser.js("[graphView.pane.scale, graphView.pane.tx]")
    browser.wheel(600, 500, -240)
    assert browser.js("graphView.pane.scale") > before[0]
    x = browser.js("graphView.pane.tx")
    browser.drag(950, 700, 900, 650)
    assert browser.js("graphView.pane.tx") == pytest.approx(x - 50, abs=3)

    # the memory plan, a buffer clicked
    browser.click(
        *browser.js("(r => [r.x + r.width / 2, r.y + r.height / 2])($('tab-memory').getBoundingClientRect())")
    )
    assert colors(browser.screenshot()) > 10
    largest = browser.js(
        "((b) => b.indexOf(b.reduce((m, x) => x.bytes > m.bytes ? x : m)))(graphView.data.memory.buffers)"
    )
    browser.click(*browser.js(f"graphView.memory.place({largest})"))
    assert browser.js("graphView.memory.selected.bytes") == browser.js(
        f"graphView.data.memory.buffers[{largest}].bytes"
    )
    assert "Alive" in browser.js("document.getElementById('details').innerText")

    # tables and clusters, then the dark page
    browser.js("graphView.setTab('ops')")
    assert "conv2d_fused" in browser.js("document.getElementById('pane-ops').innerText")
    browser.js("graphView.setTab('fusion')")
    assert "conv2d" in browser.js("document.getElementById('pane-fusion').innerText")
    browser.js("graphView.setTab('graph')")
    light = browser.screenshot()
    browser.dark()
    dark = browser.screenshot()
    browser.dark(False)

    def brightness(png: bytes) -> float:
        _, _, rows = png_pixels(png)
        return sum(map(sum, rows[::9])) / sum(map(len, rows[::9]))

    assert brightness(dark) < 80 < 180 < brightness(light)
    assert not browser.errors
    assert not [r for r in browser.requests if not r.startswith("file:")]


def test_modules_fold(browser: Browser, tmp_path: Path) -> None:
    fn = chain(60)
    data = graph_view.describe(fn)
    for i, n in enumerate(data["views"]["written"]["nodes"]):
        if n["kind"] == "op":
            n["scope"] = f"net.layer{i // 20}.{i % 20 // 5}"
            n["path"] = ["net", f"layer{i // 20}", f"layer{i // 20}.{i % 20 // 5}"]
    page = tmp_path / "fold.html"
    graph_view.write(fn, page)
    text = page.read_text("utf-8")
    at = text.index('id="data">') + len('id="data">')
    page.write_text(text[:at] + json.dumps(data).replace("</", "<\\/") + text[text.index("</script>", at) :], "utf-8")
    browser.open(page)
    browser.js("graphView.foldAll(false)")
    every = browser.js("graphView.pane.layout.items.length")
    browser.click(*browser.js("(r => [r.x + 5, r.y + 5])(document.getElementById('fold-all').getBoundingClientRect())"))
    assert browser.js("graphView.pane.layout.items.length") < every / 4
    group = browser.js("graphView.graph.groupList.findIndex(g => g.parent === graphView.pane.root)")
    place = (
        f"((it, p) => [(it.ax + it.w / 2) * p.scale + p.tx, (it.ay + it.h / 2) * p.scale + p.ty])"
        f"(graphView.pane.layout.byKey.get(graphView.graph.groupList[{group}]), graphView.pane)"
    )
    corner = "(r => [r.left, r.top])(document.getElementById('graph').getBoundingClientRect())"
    x, y = (a + b for a, b in zip(browser.js(place), browser.js(corner)))
    browser.click(x, y, 2)  # a double click unfolds
    assert browser.js(f"graphView.graph.groupList[{group}].folded") is False
    # search finds what is folded away, and going there unfolds it
    browser.js("graphView.foldAll(true); document.getElementById('search').focus()")
    browser.type("sigmoid")
    browser.press("Enter", 13)
    assert browser.js("graphView.graph.nodes[graphView.pane.selected.ref.node].op") == "sigmoid"
    browser.press("Escape", 27)
    assert not browser.errors


def test_two_thousand_nodes_are_usable(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "large.html"
    graph_view.write(chain(2000), page)
    browser.open(page)
    assert browser.js("graphView.graph.nodes.length") >= 1900
    browser.js("graphView.foldAll(false)")
    browser.frame()
    assert browser.js("graphView.pane.layoutMs") < 3000
    assert colors(browser.screenshot()) > 10
    browser.js("graphView.pane.whole()")
    browser.frame()
    assert browser.js("graphView.pane.paintMs") < 500
    browser.js("document.getElementById('search').focus()")
    browser.type("matmul")
    assert browser.js("graphView.found.length") == 10
    browser.press("Enter", 13)
    assert browser.js("graphView.graph.nodes[graphView.pane.selected.ref.node].op") == "matmul"
    assert "matmul" in browser.js("document.getElementById('details').innerText")
    assert not browser.errors


@pytest.mark.parametrize("flags", [[], ["--training"]], ids=["network", "training"])
def test_the_example(tmp_path: Path, flags: list[str]) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "look_at_a_model.py"
    page = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, str(example), "--out", str(page), *flags], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr
    assert page.stat().st_size > 100_000
