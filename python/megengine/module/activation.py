"""Activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor.qparams import as_integers_of
from ..functional import gelu, leaky_relu, prelu, relu, sigmoid, silu, softmax
from ..tensor import Parameter, Tensor
from .module import Module

__all__ = ["GELU", "LeakyReLU", "PReLU", "ReLU", "SiLU", "Sigmoid", "Softmax"]


class Softmax(Module):
    """exp(x) divided by its sum along ``axis``; see ``functional.softmax`` for None.

    >>> M.Softmax()(mge.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    def __init__(self, axis: int | Sequence[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def forward(self, inputs: Tensor) -> Tensor:
        return softmax(inputs, self.axis)

    def _module_info_string(self) -> str:
        return f"axis={self.axis}"


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    >>> M.Sigmoid()(mge.tensor([0.0])).tolist()
    [0.5]
    """

    def forward(self, inputs: Tensor) -> Tensor:
        return sigmoid(inputs)


class SiLU(Module):
    """x * sigmoid(x).

    >>> M.SiLU()(mge.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, inputs: Tensor) -> Tensor:
        return silu(inputs)


class GELU(Module):
    """x times the normal distribution function of x.

    >>> M.GELU()(mge.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, inputs: Tensor) -> Tensor:
        return gelu(inputs)


class ReLU(Module):
    """max(x, 0).

    >>> M.ReLU()(mge.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return as_integers_of(x, relu(x))


class PReLU(Module):
    """x where it is above 0, else x times a learned weight, one for all or one per channel.

    >>> M.PReLU(init=0.5)(mge.tensor([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_parameters = num_parameters
        shape = (1, num_parameters, 1, 1) if num_parameters > 1 else (1,)
        self.weight = Parameter(np.full(shape, init, dtype=np.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        return prelu(inputs, self.weight)


class LeakyReLU(Module):
    """x where it is above 0, else x * negative_slope.

    >>> M.LeakyReLU(0.5)(mge.tensor([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, negative_slope: float = 0.01, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.negative_slope = negative_slope

    def forward(self, inputs: Tensor) -> Tensor:
        return leaky_relu(inputs, self.negative_slope)
