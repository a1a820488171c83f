"""Helpers."""

from __future__ import annotations

from types import ModuleType

from ..core._lazy import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
