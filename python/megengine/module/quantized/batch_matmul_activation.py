"""A product with one matrix per batch element, on quantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...functional import quantized
from ...tensor import Parameter, Tensor
from .. import batch_matmul_activation as Float
from .module import QuantizedModule, quantized_weight


class BatchMatMulActivation(Float.BatchMatMulActivation, QuantizedModule):
    """``megengine.module.BatchMatMulActivation`` on quantised tensors.

    Made of a QAT layer it has the weight (batch, out, in, 1, 1) and the bias (1, out, 1, 1), as MegEngine's has.
    """

    def __init__(
        self,
        batch: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinear_mode: str = "identity",
        dtype: np.dtype[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch, in_features, out_features, bias, nonlinear_mode, **kwargs)
        self.output_dtype = dtype

    def calc_bmm_quantized(self, inp: Tensor) -> Tensor:
        """The layer."""
        bias = None if self.bias is None else self.bias.reshape(-1, 1)
        weight = self.weight.reshape(self.batch, self.out_features, self.in_features)
        y = quantized.matmul(weight, inp, bias, self.output_dtype, nonlinear_mode=self.nonlinear_mode)
        return self._result(y)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> BatchMatMulActivation:
        made = cls(
            qat_module.batch,
            qat_module.in_features,
            qat_module.out_features,
            qat_module.bias is not None,
            qat_module.nonlinear_mode,
            name=qat_module.name,
        )
        weight = quantized_weight(qat_module, qat_module.weight)
        made.weight = Parameter(weight.reshape(*weight.shape, 1, 1))
        made.bias = None if qat_module.bias is None else Parameter(qat_module.bias.numpy().reshape(1, -1, 1, 1))
        made._take_output(qat_module)
        return made

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_bmm_quantized(inp)
