"""The pages of docs/ and the README: what is written there as a program runs, and prints what is said.

Sessions (``>>>``) are doctests. Other blocks of a page are one program, after the lines that stand for what the reader
has: a network, data, a model file. ``print(...)  # text`` must print that text.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {str(p.relative_to(ROOT)): p.read_text() for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}

NAMES = """
import numpy as np
import megengine as mge, megengine.functional as F, megengine.module as M
import megengine.quantization as Q
from megengine.autodiff import GradManager
from megengine.data import DataLoader, RandomSampler
from megengine.data.dataset import ArrayDataset
from megengine.jit import trace
from megengine.optimizer import SGD
"""
TRAINING = """
net = M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2))
gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)
x, y = mge.Tensor(np.ones((4, 4), "float32")), mge.Tensor([0, 1, 0, 1], dtype="int32")
"""
MODEL = """
def model(path, name, out):
    layer = M.Linear(4, 2)
    infer = trace(lambda x: layer(x), capture_as_const=True)
    infer(mge.Tensor(np.ones((1, 4), "float32")))
    infer.dump(path, arg_names=[name], output_names=[out])
"""

#: Page -> what the reader has before its first block, and what is tried after its last one.
GIVEN = {
    "README.md": ("", ""),
    "docs/architecture.md": (NAMES + TRAINING, "assert step(x, y).item() > step(x, y).item()"),
    "docs/custom-ops.md": ("", "assert y.tolist() == [2.0, 4.0]"),
    "docs/distributed.md": (
        NAMES + "opt = type('', (), {'step': lambda s: s, 'clear_grad': lambda s: s})()\n"
        "class Net(M.Linear):\n    def __init__(self): super().__init__(4, 2)\n"
        "data = ArrayDataset(np.ones((256, 4), 'float32'), np.ones(256, 'int32'))\n",
        "",
    ),
    "docs/dump.md": ("", ""),
    "docs/lite.md": (
        NAMES + MODEL + "import megenginelite\n"
        "model('lenet.mge', 'data', 'logits')\nimages = np.ones((1, 4), 'float32')\n",
        "assert logits.shape == (1, 2)",
    ),
    "docs/private-names.md": (
        NAMES + MODEL + "from megengine.core.ops import builtin\n"
        "from megengine.core.tensor.utils import subgraph_fn\n"
        "x = mge.Tensor([1.0, -2.0])\nmodel('net.mge', 'x', 'y')\n",
        "assert loaded.output_vars_dict.keys() == {'y'}",
    ),
    "docs/profiling.md": (
        NAMES + TRAINING + "batches = [(x, y)]\ndef train_step(image, label): net(image)\n",
        "import os; assert os.path.exists(f'profile/{os.getpid()}.chrome_timeline.json')\n"
        "assert 'graph_exec' in profile",
    ),
    "docs/quantization.md": (
        NAMES + "images = mge.Tensor(np.random.RandomState(0).randn(2, 3, 8, 8).astype('float32'))\n"
        "some_batches = [images]\n"
        "class Mine(M.Linear): pass\n",
        "",
    ),
    "docs/tools.md": (
        NAMES + MODEL + "model('net.mge', 'x', 'y')\nstep = trace(symbolic=True)(F.exp)\nstep(F.ones(3))\n",
        "assert len(open('step.html').read()) > 10000 and data",
    ),
}
#: Blocks that are run elsewhere, or by no machine that is tested on.
ELSEWHERE = {"docs/add-an-op.md": "test_add_an_op.py follows it", "docs/gpu.md": "needs a GPU"}


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGES[page], re.S | re.M)
    return [b for b in found if not b.startswith(">>>")]


@pytest.mark.parametrize("page", [page for page in PAGES if "\n>>> " in PAGES[page]])
def test_sessions_print_what_is_written(page: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=options, encoding="utf-8")
    assert tried and not failed


def test_every_page_with_programs_is_run() -> None:
    assert {page for page in PAGES if blocks(page, "python")} == GIVEN.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("page", GIVEN)
def test_programs_run_as_they_are_written(page: str, tmp_path) -> None:
    for text in blocks(page, "cpp"):
        if name := re.match(r"// (\w+\.cpp)\n", text):
            (tmp_path / name[1]).write_text(text)
    before, after = GIVEN[page]
    program = blocks(page, "python")
    (tmp_path / "page.py").write_text("\n".join([before, *program, after]) + "\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "MGE_CUSTOM_OP_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [m for text in program for m in re.findall(r"^print\(.*\)\s+# (.*)$", text, re.M)]
    assert done.stdout.splitlines() == said


# ---- what pages point at


def tracked(suffix: str = "") -> list[Path]:
    listed = subprocess.check_output(["git", "ls-files", f"*{suffix}"], cwd=ROOT, text=True)
    return [ROOT / name for name in listed.splitlines()]


def anchors(text: str) -> set[str]:
    """What headings are linked by: their words, small and joined by dashes."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", h).strip().lower() for h in headings]
    return {re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in plain}


def test_links_lead_somewhere() -> None:
    wrong = []
    for page in tracked(".md"):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            name, _, anchor = link.partition("#")
            there = page.parent / name if name else page
            if "://" in link:
                continue
            if not there.exists() or (anchor and anchor not in anchors(there.read_text())):
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert wrong == []


def test_targets_of_make_are_there() -> None:
    rules = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", rules, re.M))
    made = {"test-" + m for m in re.findall(r"^CROSS := (.*)$", rules, re.M)[0].split()}
    named = {word for text in PAGES.values() for word in re.findall(r"`make ([a-z0-9-]+)", text)}
    assert named <= targets | made


@pytest.mark.parametrize("tool", sorted(p.name for p in (ROOT / "tools").glob("*.py")))
def test_tools_answer_help(tool: str, tmp_path) -> None:
    """And do nothing else: --help is no name of a folder."""
    line = [sys.executable, str(ROOT / "tools" / tool), "--help"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("usage: ") and not done.stderr, done
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "language, compiler, frame",
    [
        ("c", ["gcc", "-std=c99"], '#include <stdio.h>\n#include "lite-c/network_c.h"\nfloat pixels[64];\n'),
        (
            "cpp",
            ["g++", "-std=c++14"],
            '#include "lite/network.h"\n#include "lite/global.h"\nstd::vector<uint8_t> key;\n',
        ),
    ],
)
def test_blocks_about_lite_compile(language: str, compiler: list[str], frame: str, tmp_path) -> None:
    for text in blocks("docs/lite.md", language):
        file = tmp_path / f"page.{language}"
        file.write_text(f"{frame}int main(void) {{\n{text}return 0;\n}}\n")
        line = [*compiler, "-fsyntax-only", "-Wall", f"-I{ROOT / 'include'}", str(file)]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
