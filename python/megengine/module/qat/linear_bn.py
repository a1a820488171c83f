"""Fully connected layer and batch normalisation that simulate quantisation."""

from __future__ import annotations

from typing import Any

from ...functional import relu
from ...tensor import Tensor
from .. import linear_bn as Float
from ._bn import _BnQAT
from ._integers import IntegerProduct
from .linear import INTEGER_LINEAR


class _LinearBnActivation1d(Float._LinearBnActivation1d, _BnQAT):
    @property
    def _layer(self) -> Any:
        return self.linear

    def _product(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.linear.calc_linear(inp, weight, bias)

    def _weight_channels(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.linear.weight.shape, (0,)

    def _integer_product(self) -> IntegerProduct:
        return INTEGER_LINEAR

    def calc_linear_bn_qat(self, inp: Tensor, approx: bool = True) -> Tensor:
        """The layer with simulated parameters; the result is not simulated yet. See ``ConvBn2d.calc_conv_bn_qat``."""
        return self._calc_bn_qat(inp, approx)

    @classmethod
    def from_float_module(cls, float_module: Float._LinearBnActivation1d) -> _LinearBnActivation1d:
        linear, bn = float_module.linear, float_module.bn
        made = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            linear.compute_mode,
            bn.eps,
            bn.momentum,
            bn.affine,
            bn.track_running_stats,
            name=float_module.name,
        )
        made.linear.weight = linear.weight
        made.linear.bias = linear.bias
        made.bias = float_module.bias
        made.bn = bn
        return made


class LinearBn1d(_LinearBnActivation1d):
    """``megengine.module.LinearBn1d`` that simulates quantisation."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_linear_bn_qat(inp))


class LinearBnRelu1d(_LinearBnActivation1d):
    """``megengine.module.LinearBnRelu1d`` that simulates quantisation."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(relu(self.calc_linear_bn_qat(inp)))
