"""Convolution and batch normalisation that simulate quantisation."""

from __future__ import annotations

from typing import Any

from ...functional import relu
from ...tensor import Tensor
from .. import conv_bn as Float
from ._bn import _BnQAT
from ._integers import IntegerProduct
from .conv import conv_channels, integer_conv


class _ConvBnActivation2d(Float._ConvBnActivation2d, _BnQAT):
    @property
    def _layer(self) -> Any:
        return self.conv

    def _product(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.conv.calc_conv(inp, weight, bias)

    def _weight_channels(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return conv_channels(self.conv)

    def _integer_product(self) -> IntegerProduct:
        return integer_conv(self.conv)

    def calc_conv_bn_qat(self, inp: Tensor, approx: bool = True) -> Tensor:
        """The layer with simulated parameters; the result is not simulated yet.

        Args:
            inp: the input.
            approx: while training, fold with the running statistics; otherwise with those of the batch.
        """
        return self._calc_bn_qat(inp, approx)

    @classmethod
    def from_float_module(cls, float_module: Float._ConvBnActivation2d) -> _ConvBnActivation2d:
        conv, bn = float_module.conv, float_module.bn
        made = cls(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            conv.dilation,
            conv.groups,
            conv.bias is not None,
            conv.conv_mode,
            conv.compute_mode,
            bn.eps,
            bn.momentum,
            bn.affine,
            bn.track_running_stats,
            conv.padding_mode,
            name=float_module.name,
        )
        made.conv.weight = conv.weight
        made.conv.bias = conv.bias
        made.bn = bn
        return made


class ConvBn2d(_ConvBnActivation2d):
    """``megengine.module.ConvBn2d`` that simulates quantisation."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_conv_bn_qat(inp))


class ConvBnRelu2d(_ConvBnActivation2d):
    """``megengine.module.ConvBnRelu2d`` that simulates quantisation."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(relu(self.calc_conv_bn_qat(inp)))
