"""Joining tensors, with a simulated result."""

from __future__ import annotations

from collections.abc import Sequence

from ...tensor import Tensor
from .. import concat as Float
from .module import QATModule


class Concat(Float.Concat, QATModule):
    """``megengine.module.Concat`` that simulates quantisation of its result."""

    def _weight_channels(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (), ()  # it has an observer, and no weight

    def forward(self, inps: Sequence[Tensor], axis: int = 0) -> Tensor:
        return self.apply_quant_activation(super().forward(inps, axis))

    @classmethod
    def from_float_module(cls, float_module: Float.Concat) -> Concat:
        return cls(name=float_module.name)
