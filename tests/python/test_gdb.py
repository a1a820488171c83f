"""tools/gdb/mge.py: what gdb prints of tensors, shapes and graphs, on a small program that was built with -g."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SUBJECT = ROOT / "build/dev/bin/mge_gdb_subject"

PRINTED = {
    "shape": "[2,3]",
    "arg": "float32[2,3] strides [3,1] = {0, 0.5, 1, 1.5, 2, -3}",
    "flipped": "float32[3,2] strides [1,3] = {0, 1.5, 0.5, 2, 1, -3}",
    "meta": "float32[2,3]",
    "bytes": "quint8(0.05,128)[4]",
    "numbers": "SmallVec of 3 = {1, 2, 3}",
    "none": "null",
    "graph": "graph subject: 41 nodes; `mge-graph` lists them",
    "*&input": "Input %x: float32[2,3]",
    "arg.shape.d": "{2, 3",  # and what else lies in the array
}


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed (tools/bootstrap.sh gdb)")
    if not SUBJECT.exists():
        pytest.skip(f"{SUBJECT} is not built (make build)")
    commands = [
        "set confirm off",
        "set debuginfod enabled off",
        f"source {ROOT / 'tools/gdb/mge.py'}",
        "break stop_here",
        "run",
        "up",
    ]
    for expression in (*PRINTED, "*&last", "storage"):
        commands += [f"echo \\n@{expression}@", f"output {expression}"]
    commands += ["echo \\n@list@\\n", "mge-graph graph", "echo \\n@wrong@", "mge-graph meta", "echo \\n@end@"]
    arguments = [part for command in commands for part in ("-ex", command)]
    ran = subprocess.run(
        ["gdb", "-nx", "-batch", *arguments, str(SUBJECT)], capture_output=True, text=True, timeout=120, check=False
    )
    parts = (ran.stdout + ran.stderr.replace("\n", " ")).split("\n@")
    assert len(parts) > len(PRINTED), ran.stdout + ran.stderr
    said = {name: text.strip() for name, _, text in (part.partition("@") for part in parts)}
    said["stderr"] = ran.stderr
    return said


@pytest.mark.parametrize("expression", PRINTED)
def test_one_line(said: dict[str, str], expression: str) -> None:
    if expression == "arg.shape.d":
        assert said[expression].startswith(PRINTED[expression])
    else:
        assert said[expression] == PRINTED[expression]


def test_a_node_and_what_it_reads(said: dict[str, str]) -> None:
    assert said["*&last"] == "%42 = relu(%41)"


def test_a_reference_shows_its_address_and_what_is_there(said: dict[str, str]) -> None:
    assert said["storage"].startswith("0x") and "bytes = " in said["storage"]


def test_the_graph_line_by_line(said: dict[str, str]) -> None:
    lines = said["list"].splitlines()
    assert lines[:4] == [
        "input %x: float32[2,3]",
        "var %w: float32[2,3]",
        "%2: float32[2,3] = add(%x, %w)  # train.py:31",
        "%3: float32[2,3] = relu(%2)",
    ]
    assert lines[-1] == "output y = %42" and len(lines) == 44


def test_something_else_is_refused_by_name(said: dict[str, str]) -> None:
    assert "mge-graph: meta is a const mge::Meta, not an mge::ir::Graph." in said["stderr"]
