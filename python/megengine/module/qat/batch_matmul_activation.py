"""A product with one matrix per batch element, simulating quantisation."""

from __future__ import annotations

from ...functional import matmul, quantized, relu
from ...tensor import Tensor
from .. import batch_matmul_activation as Float
from ._integers import IntegerProduct
from .module import QATModule


def _product(inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = matmul(weight, inp)
    return y if bias is None else y + bias.reshape(-1, 1)


def _integer_product(inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return quantized.matmul(weight, inp, bias, "float32")


_INTEGER_PRODUCT = IntegerProduct(_integer_product, (-1, 1), -2, -1)


class BatchMatMulActivation(Float.BatchMatMulActivation, QATModule):
    """``megengine.module.BatchMatMulActivation`` that simulates quantisation of weight, bias and result."""

    def _weight_channels(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.weight.shape, (1,)

    def forward(self, inp: Tensor) -> Tensor:
        w_qat = self.apply_quant_weight(self.weight)
        y = self._calc_qat(inp, w_qat, self.bias, _product, _INTEGER_PRODUCT)
        return self.apply_quant_activation(relu(y) if self.nonlinear_mode == "relu" else y)

    @classmethod
    def from_float_module(cls, float_module: Float.BatchMatMulActivation) -> BatchMatMulActivation:
        made = cls(
            float_module.batch,
            float_module.in_features,
            float_module.out_features,
            float_module.bias is not None,
            float_module.nonlinear_mode,
            name=float_module.name,
        )
        made.weight = float_module.weight
        made.bias = float_module.bias
        return made
