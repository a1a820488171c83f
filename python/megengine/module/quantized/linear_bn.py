"""Fully connected layer and batch normalisation as one layer of integers."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .linear import Linear


class _LinearBnActivation1d(Linear):
    @classmethod
    def from_qat_module(cls, qat_module: Any) -> _LinearBnActivation1d:
        weight, bias = qat_module.fold_weight_bias(qat_module.bn.running_mean, qat_module.bn.running_var)
        made = cls._made(qat_module, weight, bias)
        assert isinstance(made, _LinearBnActivation1d)
        return made


class LinearBn1d(_LinearBnActivation1d):
    """``megengine.module.LinearBn1d`` on quantised tensors."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_linear_quantized(inp)


class LinearBnRelu1d(_LinearBnActivation1d):
    """``megengine.module.LinearBnRelu1d`` on quantised tensors."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_linear_quantized(inp, nonlinear_mode="relu")
