"""The original's op classes: ``apply(builtin.Elemwise(mode="add"), a, b)``.

>>> from megengine.core.ops import builtin
>>> from megengine.core._imperative_rt.core2 import apply
>>> apply(builtin.Elemwise("add"), mge.tensor([1.0]), mge.tensor([2.0]))[0].tolist()
[3.0]
"""

from __future__ import annotations

from typing import Any

from .._imperative_rt.opdef import OpDef
from .._imperative_rt.ops import OPS

__all__ = [*OPS, "OpDef"]


def __getattr__(name: str) -> Any:
    if name in OPS:
        return OPS[name]
    raise AttributeError(f"module 'megengine.core.ops.builtin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *OPS]
