"""Padding."""

from __future__ import annotations

from collections.abc import Sequence

from ..functional import pad
from ..tensor import Tensor
from .module import Module


class Pad(Module):
    """Extends a tensor on both sides of its axes; see ``functional.pad``.

    >>> M.Pad(((1, 1),))(mge.tensor([5.0])).tolist()
    [0.0, 5.0, 0.0]
    """

    def __init__(self, pad_width: Sequence[Sequence[int]], mode: str = "constant", constant_val: float = 0.0) -> None:
        super().__init__()
        self.pad_width = pad_width
        self.mode = mode
        self.pad_val = constant_val

    def forward(self, src: Tensor) -> Tensor:
        return pad(src, self.pad_width, self.mode, self.pad_val)
