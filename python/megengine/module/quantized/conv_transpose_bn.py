"""Transposed convolution and batch normalisation as one layer of integers."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .conv import ConvTranspose2d


class _ConvTransposeBnActivation2d(ConvTranspose2d):
    @classmethod
    def from_qat_module(cls, qat_module: Any) -> _ConvTransposeBnActivation2d:
        weight, bias = qat_module.fold_weight_bias(qat_module.bn.running_mean, qat_module.bn.running_var)
        made = cls._made(qat_module, qat_module.conv_transpose2d, weight, bias)
        assert isinstance(made, _ConvTransposeBnActivation2d)
        return made


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """``megengine.module.ConvTransposeBn2d`` on quantised tensors."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp)


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """``megengine.module.ConvTransposeBnRelu2d`` on quantised tensors."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp, nonlinear_mode="relu")
