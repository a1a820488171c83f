"""Convolution and batch normalisation as one layer of integers: the normalisation is in the weight."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .conv import Conv2d


class _ConvBnActivation2d(Conv2d):
    @classmethod
    def from_qat_module(cls, qat_module: Any) -> _ConvBnActivation2d:
        weight, bias = qat_module.fold_weight_bias(qat_module.bn.running_mean, qat_module.bn.running_var)
        made = cls._made(qat_module, qat_module.conv, weight, bias)
        assert isinstance(made, _ConvBnActivation2d)
        return made


class ConvBn2d(_ConvBnActivation2d):
    """``megengine.module.ConvBn2d`` on quantised tensors."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp)


class ConvBnRelu2d(_ConvBnActivation2d):
    """``megengine.module.ConvBnRelu2d`` on quantised tensors."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp, nonlinear_mode="relu")
