"""Fully connected layers on quantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...functional import quantized
from ...tensor import Parameter, Tensor
from .module import QuantizedModule, quantized_weight


class Linear(QuantizedModule):
    """``megengine.module.Linear`` on quantised tensors; weight and bias come from a QAT layer."""

    def __init__(self, dtype: np.dtype[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weight: Parameter | None = None
        self.bias: Parameter | None = None
        self.output_dtype = dtype

    def calc_linear_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """The layer, with an activation."""
        if self.weight is None:
            raise ValueError(f"Quantized.{type(self).__name__}: it has no weight yet. Make it with from_qat_module.")
        x = inp if inp.ndim > 1 else inp.reshape(1, -1)
        y = quantized.matmul(
            x, self.weight, self.bias, self.output_dtype, transpose_b=True, nonlinear_mode=nonlinear_mode
        )
        return self._result(y if inp.ndim > 1 else y.reshape(-1))

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Linear:
        return cls._made(qat_module, qat_module.weight, qat_module.bias)

    @classmethod
    def _made(cls, qat_module: Any, weight: Tensor, bias: Tensor | None) -> Linear:
        made = cls(name=qat_module.name)
        made.weight = quantized_weight(qat_module, weight)
        made.bias = None if bias is None else Parameter(bias.numpy().reshape(-1))
        made._take_output(qat_module)
        return made

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_linear_quantized(inp)


class LinearRelu(Linear):
    """``megengine.module.LinearRelu`` on quantised tensors."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_linear_quantized(inp, nonlinear_mode="relu")
