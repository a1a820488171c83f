"""Pooling to a given output size."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ..functional import adaptive_avg_pool2d, adaptive_max_pool2d
from ..tensor import Tensor
from .module import Module

__all__ = ["AdaptiveAvgPool2d", "AdaptiveMaxPool2d"]


class _AdaptivePoolNd(Module):
    def __init__(self, oshp: int | tuple[int, int] | Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.oshp = oshp

    @abstractmethod
    def forward(self, inp: Tensor) -> Tensor: ...


class AdaptiveMaxPool2d(_AdaptivePoolNd):
    """Max pooling to (height, width): stride I // O, window I - (O - 1) * stride.

    >>> M.AdaptiveMaxPool2d((2, 2))(F.ones((1, 1, 4, 4))).shape
    (1, 1, 2, 2)
    """

    def forward(self, inp: Tensor) -> Tensor:
        return adaptive_max_pool2d(inp, self.oshp)


class AdaptiveAvgPool2d(_AdaptivePoolNd):
    """Average pooling to (height, width): stride I // O, window I - (O - 1) * stride.

    >>> M.AdaptiveAvgPool2d((1, 1))(F.ones((1, 1, 4, 4))).item()
    1.0
    """

    def forward(self, inp: Tensor) -> Tensor:
        return adaptive_avg_pool2d(inp, self.oshp)
