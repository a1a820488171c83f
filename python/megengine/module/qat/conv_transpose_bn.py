"""Transposed convolution and batch normalisation that simulate quantisation."""

from __future__ import annotations

from typing import Any

from ...functional import relu
from ...tensor import Tensor
from .. import conv_transpose_bn as Float
from ._bn import _BnQAT
from ._integers import IntegerProduct
from .conv import conv_transpose_channels, integer_conv_transpose


class _ConvTransposeBnActivation2d(Float._ConvTransposeBnActivation2d, _BnQAT):
    _transpose = True

    @property
    def _layer(self) -> Any:
        return self.conv_transpose2d

    def _product(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.conv_transpose2d.calc_conv_transpose2d(inp, weight, bias)

    def _weight_channels(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return conv_transpose_channels(self.conv_transpose2d)

    def _integer_product(self) -> IntegerProduct:
        return integer_conv_transpose(self.conv_transpose2d)

    def calc_conv_transpose2d_bn_qat(self, inp: Tensor, approx: bool = True) -> Tensor:
        """The layer with simulated parameters; the result is not simulated yet. See ``ConvBn2d.calc_conv_bn_qat``."""
        return self._calc_bn_qat(inp, approx)

    @classmethod
    def from_float_module(cls, float_module: Float._ConvTransposeBnActivation2d) -> _ConvTransposeBnActivation2d:
        conv, bn = float_module.conv_transpose2d, float_module.bn
        made = cls(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            conv.output_padding,
            conv.dilation,
            conv.groups,
            conv.bias is not None,
            conv.conv_mode,
            conv.compute_mode,
            bn.eps,
            bn.momentum,
            bn.affine,
            bn.track_running_stats,
            name=float_module.name,
        )
        made.conv_transpose2d.weight = conv.weight
        made.conv_transpose2d.bias = conv.bias
        made.bn = bn
        return made


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """``megengine.module.ConvTransposeBn2d`` that simulates quantisation."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_conv_transpose2d_bn_qat(inp))


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """``megengine.module.ConvTransposeBnRelu2d`` that simulates quantisation."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(relu(self.calc_conv_transpose2d_bn_qat(inp)))
