"""The pinned stub of the extension names exactly what the extension has."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import megengine
from megengine.core import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB = pathlib.Path(megengine.__file__).parent / "core" / "_core.pyi"


def stub_names() -> tuple[set[str], dict[str, set[str]]]:
    top: set[str] = set()
    members: dict[str, set[str]] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            top.add(node.name)
        elif isinstance(node, ast.ClassDef):
            top.add(node.name)
            names = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            names |= {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
            members[node.name] = names
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            top.add(node.target.id)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            top.add(node.targets[0].id)
    return top, members


def test_stub_and_extension_have_the_same_names() -> None:
    top, members = stub_names()
    real = {n for n in dir(_core) if not n.startswith("__")}
    hidden = {n for n in top if n.startswith("_")}  # helper types that exist only for the type checker
    assert real - top == set(), "in the extension, not in the stub"
    assert top - hidden - real == set(), "in the stub, not in the extension"
    for name, want in members.items():
        cls = getattr(_core, name, None)
        if not isinstance(cls, type) or issubclass(cls, BaseException):
            continue
        missing = {m for m in want if not hasattr(cls, m)}
        assert missing == set(), f"{name}: in the stub, not in the extension"
        extra = {m for m in vars(cls) if not m.startswith("_")} - want
        assert extra == set(), f"{name}: in the extension, not in the stub"


def test_the_ops_of_the_stub_are_those_of_the_registry() -> None:
    run = subprocess.run([sys.executable, "tools/stubs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


WRONG = """
from megengine.core._core import ops
from megengine import Tensor

def f(x: Tensor) -> None:
    ops.conv2d(x, x, None, strides=(1, 1))
    ops.conv2dd(x, x)
    ops.reduce(x, mode=3)
    ops.exp(x, x)
    y, mask = ops.dropout(x, x, p=0.5)
    ops.matmul.uncast(x, x, transpose_b=True)
    ops.exp.update((x,), x, x)
    ops.conv2d(x, x, None, stride=(1, 1))
    ops.concat(x, x, x, axis=1)
"""


def test_the_type_checker_sees_a_misspelt_op_or_attribute(tmp_path: pathlib.Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    flags = ["--no-error-summary", "--follow-imports=skip", f"--cache-dir={tmp_path}/cache"]  # stubs are read anyway
    command = [sys.executable, "-m", "mypy", *flags, "wrong.py"]
    env = {"MYPYPATH": str(pathlib.Path(megengine.__file__).parents[1]), "PATH": ""}
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env)
    lines = [int(line.split(":")[1]) for line in run.stdout.splitlines() if ": error:" in line]
    assert sorted(set(lines)) == list(range(6, 13)), run.stdout + run.stderr
