"""Fully connected layers that simulate quantisation."""

from __future__ import annotations

from ...functional import quantized, relu
from ...tensor import Tensor
from .. import linear as Float
from ._integers import IntegerProduct
from .module import QATModule


def _integer_linear(inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The layer on quantised tensors, as float32."""
    x = inp if inp.ndim > 1 else inp.reshape(1, -1)
    y = quantized.matmul(x, weight, bias, "float32", transpose_b=True)
    return y if inp.ndim > 1 else y.reshape(-1)


INTEGER_LINEAR = IntegerProduct(_integer_linear, (-1,), -1, -1)


class Linear(Float.Linear, QATModule):
    """``megengine.module.Linear`` that simulates quantisation of weight, bias and result."""

    def _weight_channels(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.weight.shape, (0,)

    def calc_linear_qat(self, inp: Tensor) -> Tensor:
        """The layer with simulated parameters; the result is not simulated yet."""
        w_qat = self.apply_quant_weight(self.weight)
        return self._calc_qat(inp, w_qat, self.bias, self.calc_linear, INTEGER_LINEAR)

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
