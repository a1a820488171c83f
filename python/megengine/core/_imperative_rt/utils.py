"""Names of the original's private runtime utilities that programs import."""

from __future__ import annotations

from typing import Any

from .._core import CompNode, device_count, trim_memory
from . import Logger, OperatorNodeConfig, make_h2d
from ._stand_ins import stand_in

__all__ = [
    "CompNode",
    "Logger",
    "OperatorNodeConfig",
    "_get_device_count",
    "_try_coalesce_all_free_memory",
    "make_h2d",
]


def _get_device_count(device_type: str, warn: bool = True) -> int:
    """How many devices of a kind there are."""
    return int(device_count(device_type))


def _try_coalesce_all_free_memory(*_: Any) -> None:
    """Free memory goes back to the system."""
    trim_memory()


def __getattr__(name: str) -> Any:
    return stand_in(__name__, name)
