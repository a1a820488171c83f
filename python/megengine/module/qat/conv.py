"""Convolutions that simulate quantisation."""

from __future__ import annotations

from ...functional import quantized, relu
from ...tensor import Tensor
from .. import conv as Float
from ._integers import IntegerProduct
from .module import QATModule


def conv_channels(layer: Float.Conv2d) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of the weight, axes of its output channels."""
    return layer.weight.shape, (0,) if layer.groups == 1 else (0, 1)


def conv_transpose_channels(layer: Float.ConvTranspose2d) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of the weight, axes of its output channels."""
    if layer.groups != 1:
        raise NotImplementedError(
            f"{type(layer).__name__}: a transposed convolution with groups={layer.groups} has one scale for its "
            "weight; per_channel=True needs groups=1."
        )
    return layer.weight.shape, (1,)


def integer_conv(layer: Float.Conv2d) -> IntegerProduct:
    """The layer on quantised tensors."""

    def run(inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, padding = layer._padded(inp)
        return quantized.conv_bias_activation(
            x, weight, bias, "float32", layer.stride, padding, layer.dilation, layer.groups
        )

    return IntegerProduct(run, (1, -1, 1, 1), 1, -3, layer.groups)


def integer_conv_transpose(layer: Float.ConvTranspose2d) -> IntegerProduct:
    """The layer on quantised tensors."""

    def run(inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return quantized.conv_transpose2d(
            inp,
            weight,
            bias,
            "float32",
            layer.stride,
            layer.padding,
            layer.output_padding,
            layer.dilation,
            layer.groups,
        )

    return IntegerProduct(run, (1, -1, 1, 1), 1, -4, layer.groups)


class Conv2d(Float.Conv2d, QATModule):
    """``megengine.module.Conv2d`` that simulates quantisation of weight, bias and result."""

    def _weight_channels(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return conv_channels(self)

    def calc_conv_qat(self, inp: Tensor) -> Tensor:
        """The layer with simulated parameters; the result is not simulated yet."""
        w_qat = self.apply_quant_weight(self.weight)
        return self._calc_qat(inp, w_qat, self.bias, self.calc_conv, integer_conv(self))

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_conv_qat(inp))

    @classmethod
    def from_float_module(cls, float_module: Float.Conv2d) -> Conv2d:
        made = cls(
            float_module.in_channels,
            float_module.out_channels,
            float_module.kernel_size,
            float_module.stride,
            float_module.padding,
            float_module.dilation,
            float_module.groups,
            float_module.bias is not None,
            float_module.conv_mode,
            float_module.compute_mode,
            float_module.padding_mode,
            name=float_module.name,
        )
        made.weight = float_module.weight
        made.bias = float_module.bias
        return made


class ConvRelu2d(Conv2d):
    """``megengine.module.ConvRelu2d`` that simulates quantisation."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(relu(self.calc_conv_qat(inp)))


class ConvTranspose2d(Float.ConvTranspose2d, QATModule):
    """``megengine.module.ConvTranspose2d`` that simulates quantisation of weight, bias and result."""

    def _weight_channels(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return conv_transpose_channels(self)

    def calc_conv_transpose2d_qat(self, inp: Tensor) -> Tensor:
        """The layer with simulated parameters; the result is not simulated yet."""
        w_qat = self.apply_quant_weight(self.weight)
        return self._calc_qat(inp, w_qat, self.bias, self.calc_conv_transpose2d, integer_conv_transpose(self))

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(self.calc_conv_transpose2d_qat(inp))

    @classmethod
    def from_float_module(cls, float_module: Float.ConvTranspose2d) -> ConvTranspose2d:
        made = cls(
            float_module.in_channels,
            float_module.out_channels,
            float_module.kernel_size,
            float_module.stride,
            float_module.padding,
            float_module.output_padding,
            float_module.dilation,
            float_module.groups,
            float_module.bias is not None,
            float_module.conv_mode,
            float_module.compute_mode,
            name=float_module.name,
        )
        made.weight = float_module.weight
        made.bias = float_module.bias
        return made


class ConvTransposeRelu2d(ConvTranspose2d):
    """``megengine.module.ConvTransposeRelu2d`` that simulates quantisation."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(relu(self.calc_conv_transpose2d_qat(inp)))
