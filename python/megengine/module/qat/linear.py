"""Fully connected layers that simulate quantisation."""

from __future__ import annotations

from ...functional import relu
from ...tensor import Tensor
from .. import linear as Float
from .module import QATModule


class Linear(Float.Linear, QATModule):
    """``megengine.module.Linear`` that simulates quantisation of weight, bias and result."""

    def calc_linear_qat(self, inp: Tensor) -> Tensor:
        """The layer with simulated parameters; the result is not simulated yet."""
        w_qat = self.apply_quant_weight(self.weight)
        return self.calc_linear(inp, w_qat, self.apply_quant_bias(self.bias, inp, w_qat))

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_linear_qat(inp))

    @classmethod
    def from_float_module(cls, float_module: Float.Linear) -> Linear:
        made = cls(
            float_module.in_features,
            float_module.out_features,
            float_module.bias is not None,
            float_module.compute_mode,
            name=float_module.name,
        )
        made.weight = float_module.weight
        made.bias = float_module.bias
        return made


class LinearRelu(Linear):
    """``megengine.module.LinearRelu`` that simulates quantisation."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(relu(self.calc_linear_qat(inp)))
