"""What the examples share: a file's samples, a tensor's first values as text."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from megenginelite import LiteTensor

Array = npt.NDArray[Any]


def samples(path: str, x: LiteTensor) -> Array:
    """All of a raw float32 file, in the shape of input ``x`` but for the first dimension."""
    return np.fromfile(path, np.float32).reshape(-1, *x.layout.shapes[1 : x.layout.ndim])


def describe(name: str, values: Array) -> str:
    """``logits [2,5]: 0.1 0.2 ...``"""
    shape = ",".join(str(n) for n in values.shape)
    return f"{name} [{shape}]: " + " ".join(f"{v:.9g}" for v in values.flat[:10])


def arguments(usage: str) -> list[str]:
    """The two words of the command line."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {usage}")
    return sys.argv[1:]
