"""Modules of a package as attributes, imported when first asked for: ``mge.utils.profiler``."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def submodule(package: str, name: str) -> ModuleType:
    """``package.name``; AttributeError, as of any module, when there is none."""
    path = f"{package}.{name}"
    if not name.startswith("__"):
        try:
            return import_module(path)
        except ModuleNotFoundError as e:
            if e.name != path:
                raise
    raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
