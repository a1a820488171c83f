"""Pooling."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ..functional import avg_pool2d, max_pool2d
from ..tensor import Tensor
from ..utils.tuple_function import _pair, _pair_nonzero
from .module import Module, _shape_of

__all__ = ["AvgPool2d", "MaxPool2d"]

Pair = int | tuple[int, int]


class _PoolNd(Module):
    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        who = type(self).__name__
        _pair_nonzero(kernel_size, f"{who}: kernel_size")
        if stride is not None and stride != 0:
            _pair_nonzero(stride, f"{who}: stride")
        _pair(padding, f"{who}: padding")
        self.kernel_size = kernel_size
        self.stride = stride or kernel_size
        self.padding = padding

    @abstractmethod
    def forward(self, inp: Tensor) -> Tensor: ...

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        shape = _shape_of(inputs)
        if shape is None:
            return None
        if len(shape) != 4:
            return f"the input must be (N, C, H, W); got {shape}."
        if "larger than the padded input" not in str(error):
            return None
        return f"kernel_size={self.kernel_size} does not fit into the input {shape}; padding={self.padding}."

    def _module_info_string(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool2d(_PoolNd):
    """The largest element of each window; the stride is the window size unless given.

    >>> M.MaxPool2d(2)(F.ones((1, 1, 4, 4))).shape
    (1, 1, 2, 2)
    """

    def forward(self, inp: Tensor) -> Tensor:
        return max_pool2d(inp, self.kernel_size, self.stride, self.padding)


class AvgPool2d(_PoolNd):
    """The mean of each window; mode ``"average"`` counts padding, the default does not.

    >>> M.AvgPool2d(2)(F.ones((1, 1, 4, 4))).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        mode: str = "average_count_exclude_padding",
        **kwargs: Any,
    ) -> None:
        super().__init__(kernel_size, stride, padding, **kwargs)
        self.mode = mode

    def forward(self, inp: Tensor) -> Tensor:
        return avg_pool2d(inp, self.kernel_size, self.stride, self.padding, self.mode)

    def _module_info_string(self) -> str:
        return f"{super()._module_info_string()}, mode={self.mode}"
