"""What tensors are made of besides storage: dtypes, index rules, argument helpers."""

from __future__ import annotations

from types import ModuleType

from .._lazy import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
