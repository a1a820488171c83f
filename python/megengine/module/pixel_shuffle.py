"""Channels into resolution."""

from __future__ import annotations

from typing import Any

from ..functional import pixel_shuffle
from ..tensor import Tensor
from .module import Module, _shape_of


class PixelShuffle(Module):
    """(..., C * r * r, H, W) to (..., C, H * r, W * r).

    >>> M.PixelShuffle(2)(F.ones((1, 4, 3, 3))).shape
    (1, 1, 6, 6)
    """

    def __init__(self, upscale_factor: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.upscale_factor = upscale_factor

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        shape, r = _shape_of(inputs), self.upscale_factor
        if shape is None or len(shape) < 3 or shape[-3] % (r * r) == 0:
            return None
        return f"{shape[-3]} channels are not a multiple of {r} * {r}; got {shape}, upscale_factor={r}."

    def forward(self, x: Tensor) -> Tensor:
        return pixel_shuffle(x, self.upscale_factor)
