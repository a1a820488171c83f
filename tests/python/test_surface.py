"""Public names and parameters of MegEngine (tests/data/surface.json): a call that was legal there is legal here."""

from __future__ import annotations

import importlib
import inspect
import json
import pathlib
from typing import Any

import pytest

SURFACE = json.loads((pathlib.Path(__file__).parent.parent / "data" / "surface.json").read_text())


def problems(what: str, want: list[list[Any]] | None, obj: Any) -> list[str]:
    """Parameters (name, kind, default) that `obj` does not take as `want` says."""
    if want is None:
        return []
    try:
        got = list(inspect.signature(obj).parameters.values())
    except (TypeError, ValueError):
        return []  # a C function without a signature: only a call can tell
    # `**other: NoReturn` takes nothing: it is there to say so in our words.
    takes_any = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.annotation != "NoReturn" for p in got)
    if takes_any and not any(kind.startswith("var_") for _, kind, _ in want):
        return []
    names, found = [p.name for p in got], []
    for i, (name, kind, default) in enumerate(want):
        if kind.startswith("var_"):
            continue
        if name not in names:
            found.append(f"{what}: no parameter {name}")
            continue
        at = names.index(name)
        if kind == "positional_or_keyword" and at != i:
            found.append(f"{what}: parameter {name} is number {at + 1}, not {i + 1}")
        if default is not None and got[at].default is inspect.Parameter.empty:
            found.append(f"{what}: parameter {name} has no default")
        elif default not in (None, "...") and "<" not in default and "object" not in default:
            if repr(got[at].default) != default:
                found.append(f"{what}: parameter {name} defaults to {got[at].default!r}, not {default}")
    return found


@pytest.mark.parametrize("module", sorted(SURFACE))
def test_names_and_parameters(module: str) -> None:
    loaded, found = importlib.import_module(module), []
    for name, want in SURFACE[module].items():
        obj = getattr(loaded, name, None)
        if obj is None:
            found.append(f"{name}: missing")
            continue
        found += problems(name, want.get("init" if want["kind"] == "class" else "args"), obj)
        for member, signature in (want.get("members") or {}).items():
            if not hasattr(obj, member):
                found.append(f"{name}.{member}: missing")
            elif isinstance(signature, list):
                found += problems(f"{name}.{member}", signature, getattr(obj, member))
    assert found == []
