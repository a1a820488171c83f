"""Convolution and batch normalisation as one module."""

from __future__ import annotations

from typing import Any

from ..functional import relu
from ..tensor import Tensor
from .batchnorm import BatchNorm2d
from .conv import Conv2d, Ints
from .module import Module

__all__ = ["ConvBn2d", "ConvBnRelu2d"]


class _ConvBnActivation2d(Module):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conv = Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            conv_mode,
            compute_mode,
            padding_mode,
            **kwargs,
        )
        self.bn = BatchNorm2d(out_channels, eps, momentum, affine, track_running_stats)


class ConvBn2d(_ConvBnActivation2d):
    """2-D convolution, then batch normalisation.

    >>> M.ConvBn2d(3, 2, 3)(F.ones((2, 3, 4, 4))).shape
    (2, 2, 2, 2)
    """

    def forward(self, inp: Tensor) -> Tensor:
        y: Tensor = self.bn(self.conv(inp))
        return y


class ConvBnRelu2d(_ConvBnActivation2d):
    """2-D convolution, batch normalisation, relu.

    >>> M.ConvBnRelu2d(3, 2, 3)(F.ones((2, 3, 4, 4))).shape
    (2, 2, 2, 2)
    """

    def forward(self, inp: Tensor) -> Tensor:
        return relu(self.bn(self.conv(inp)))
