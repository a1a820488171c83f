"""Transposed convolution and batch normalisation as one module."""

from __future__ import annotations

from typing import Any

from ..functional import relu
from ..tensor import Tensor
from .batchnorm import BatchNorm2d
from .conv import ConvTranspose2d, Ints
from .module import Module

__all__ = ["ConvTransposeBn2d", "ConvTransposeBnRelu2d"]


class _ConvTransposeBnActivation2d(Module):
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
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conv_transpose2d = ConvTranspose2d(
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
        self.bn = BatchNorm2d(out_channels, eps, momentum, affine, track_running_stats)


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """2-D transposed convolution, then batch normalisation.

    >>> M.ConvTransposeBn2d(3, 2, 2)(F.ones((2, 3, 4, 4))).shape
    (2, 2, 5, 5)
    """

    def forward(self, inp: Tensor) -> Tensor:
        y: Tensor = self.bn(self.conv_transpose2d(inp))
        return y


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """2-D transposed convolution, batch normalisation, relu.

    >>> M.ConvTransposeBnRelu2d(3, 2, 2)(F.ones((2, 3, 4, 4))).shape
    (2, 2, 5, 5)
    """

    def forward(self, inp: Tensor) -> Tensor:
        return relu(self.bn(self.conv_transpose2d(inp)))
