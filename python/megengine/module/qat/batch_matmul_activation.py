"""A product with one matrix per batch element, simulating quantisation."""

from __future__ import annotations

from ...functional import matmul, relu
from ...tensor import Tensor
from .. import batch_matmul_activation as Float
from .module import QATModule


class BatchMatMulActivation(Float.BatchMatMulActivation, QATModule):
    """``megengine.module.BatchMatMulActivation`` that simulates quantisation of weight, bias and result."""

    def forward(self, inp: Tensor) -> Tensor:
        w_qat = self.apply_quant_weight(self.weight)
        b_qat = self.apply_quant_bias(self.bias, inp, w_qat)
        y = matmul(w_qat, inp)
        if b_qat is not None:
            y = y + b_qat.reshape(-1, 1)
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
