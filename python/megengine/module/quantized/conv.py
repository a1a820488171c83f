"""Convolutions of quantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...functional import quantized
from ...tensor import Parameter, Tensor
from .. import conv as Float
from ..conv import Ints
from .module import QuantizedModule, quantized_weight


class Conv2d(Float.Conv2d, QuantizedModule):
    """``megengine.module.Conv2d`` on quantised tensors. There is always a bias, kept as float32."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        dtype: np.dtype[Any] | None = None,
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            True,
            conv_mode,
            compute_mode,
            padding_mode,
            **kwargs,
        )
        self.output_dtype = dtype

    def calc_conv_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """The layer, with an activation."""
        x, padding = self._padded(inp)
        y = quantized.conv_bias_activation(
            x,
            self.weight,
            self.bias,
            self.output_dtype,
            self.stride,
            padding,
            self.dilation,
            self.groups,
            nonlinear_mode,
            self.conv_mode,
            self.compute_mode,
        )
        return self._result(y)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Conv2d:
        return cls._made(qat_module, qat_module, qat_module.weight, qat_module.bias)

    @classmethod
    def _made(cls, qat_module: Any, layer: Any, weight: Tensor, bias: Tensor | None) -> Conv2d:
        made = cls(
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups,
            layer.conv_mode,
            layer.compute_mode,
            padding_mode=layer.padding_mode,
            name=qat_module.name,
        )
        made.weight = quantized_weight(qat_module, weight)
        made.bias = Parameter(np.zeros(made._infer_bias_shape(), "float32") if bias is None else bias.numpy())
        made._take_output(qat_module)
        return made

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp)


class ConvRelu2d(Conv2d):
    """``megengine.module.ConvRelu2d`` on quantised tensors."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp, nonlinear_mode="relu")


class ConvTranspose2d(Float.ConvTranspose2d, QuantizedModule):
    """``megengine.module.ConvTranspose2d`` on quantised tensors."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        dtype: np.dtype[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
            conv_mode,
            compute_mode,
            **kwargs,
        )
        self.output_dtype = dtype

    def calc_conv_transpose2d_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """The layer, with an activation."""
        y = quantized.conv_transpose2d(
            inp,
            self.weight,
            self.bias,
            self.output_dtype,
            self.stride,
            self.padding,
            self.output_padding,
            self.dilation,
            self.groups,
            self.conv_mode,
            self.compute_mode,
            nonlinear_mode,
        )
        return self._result(y)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> ConvTranspose2d:
        return cls._made(qat_module, qat_module, qat_module.weight, qat_module.bias)

    @classmethod
    def _made(cls, qat_module: Any, layer: Any, weight: Tensor, bias: Tensor | None) -> ConvTranspose2d:
        made = cls(
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.output_padding,
            layer.dilation,
            layer.groups,
            bias is not None,
            layer.conv_mode,
            layer.compute_mode,
            name=qat_module.name,
        )
        made.weight = quantized_weight(qat_module, weight)
        made.bias = None if bias is None else Parameter(bias.numpy())
        made._take_output(qat_module)
        return made

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp)


class ConvTransposeRelu2d(ConvTranspose2d):
    """``megengine.module.ConvTransposeRelu2d`` on quantised tensors."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp, nonlinear_mode="relu")
