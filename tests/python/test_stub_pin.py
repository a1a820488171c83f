"""The pinned stub of the extension names exactly what the extension has."""

from __future__ import annotations

import ast
import pathlib

import megengine
from megengine.core import _core

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
