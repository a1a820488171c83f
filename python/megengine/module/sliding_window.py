"""Windows of images."""

from __future__ import annotations

from typing import Any

from ..functional import sliding_window, sliding_window_transpose
from ..tensor import Tensor
from .module import Module

__all__ = ["SlidingWindow", "SlidingWindowTranspose"]

Pair = int | tuple[int, int]


class SlidingWindow(Module):
    """The windows that a convolution would see, (N, C, OH, OW, kh, kw).

    >>> M.SlidingWindow(3)(F.ones((1, 2, 4, 4))).shape
    (1, 2, 2, 2, 3, 3)
    """

    def __init__(
        self, kernel_size: Pair, padding: Pair = 0, stride: Pair = 1, dilation: Pair = 1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.padding = padding
        self.stride = stride
        self.dilation = dilation

    def forward(self, inp: Tensor) -> Tensor:
        return sliding_window(inp, self.kernel_size, self.padding, self.stride, self.dilation)


class SlidingWindowTranspose(Module):
    """Adds windows up into images, the adjoint of ``SlidingWindow``.

    >>> M.SlidingWindowTranspose((4, 4), 3)(F.ones((1, 2, 2, 2, 3, 3))).shape
    (1, 2, 4, 4)
    """

    def __init__(
        self,
        output_size: Pair,
        kernel_size: Pair,
        padding: Pair = 0,
        stride: Pair = 1,
        dilation: Pair = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.padding = padding
        self.stride = stride
        self.dilation = dilation

    def forward(self, inp: Tensor) -> Tensor:
        return sliding_window_transpose(
            inp, self.output_size, self.kernel_size, self.padding, self.stride, self.dilation
        )
