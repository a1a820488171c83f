"""A private module of the original that programs import."""

from __future__ import annotations

from typing import Any

from ._stand_ins import stand_in


def __getattr__(name: str) -> Any:
    return stand_in(__name__, name)
