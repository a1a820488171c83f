"""Elementwise functions with a simulated result."""

from __future__ import annotations

from ...tensor import Tensor
from .. import elemwise as Float
from .module import QATModule


class Elemwise(Float.Elemwise, QATModule):
    """``megengine.module.Elemwise`` that simulates quantisation of its result."""

    with_weight = False

    def forward(self, *inps: Tensor) -> Tensor:
        return self.apply_quant_activation(super().forward(*inps))

    @classmethod
    def from_float_module(cls, float_module: Float.Elemwise) -> Elemwise:
        return cls(float_module.method, name=float_module.name)
