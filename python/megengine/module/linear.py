"""Fully connected layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..functional import linear, relu
from ..tensor import Parameter, Tensor
from ..utils.tuple_function import check_size
from . import init
from .module import Module, _shape_of

__all__ = ["Linear", "LinearRelu"]


class Linear(Module):
    """x @ weight.T + bias.

    Args:
        in_features: the last size of the input.
        out_features: the last size of the output.
        bias: whether to add a bias.
        compute_mode: ``"default"`` or ``"float32"``.

    >>> M.Linear(3, 2)(F.ones((4, 3))).shape
    (4, 2)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, compute_mode: str = "default", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            check_size(f"{type(self).__name__}: {name}", size, 0)
        if compute_mode.lower() not in ("default", "float32"):
            raise ValueError(f"{type(self).__name__}: compute_mode must be default or float32; got {compute_mode!r}.")
        self.in_features = in_features
        self.out_features = out_features
        self.compute_mode = compute_mode
        self.weight = Parameter(np.zeros((out_features, in_features), dtype=np.float32))
        self.bias = Parameter(np.zeros(out_features, dtype=np.float32)) if bias else None
        self.reset_parameters()

    def _get_fanin(self) -> int:
        return self.in_features

    def reset_parameters(self) -> None:
        """Normal numbers with variance 1 / in_features; the bias is 0."""
        init.normal_(self.weight, 0.0, math.sqrt(1.0 / max(self._get_fanin(), 1)))
        if self.bias is not None:
            init.zeros_(self.bias)

    def calc_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer with other parameters."""
        return linear(x, weight, bias, compute_mode=self.compute_mode)

    def forward(self, x: Tensor) -> Tensor:
        return self.calc_linear(x, self.weight, self.bias)

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        shape = _shape_of(inputs)
        if not shape or shape[-1] == self.in_features:
            return None
        way = " F.flatten(x, 1) would match." if math.prod(shape[1:]) == self.in_features else ""
        return f"the input {shape} has {shape[-1]} features on its last axis, but in_features={self.in_features}.{way}"

    def _module_info_string(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class LinearRelu(Linear):
    """relu(x @ weight.T + bias).

    >>> bool((M.LinearRelu(3, 2)(F.ones((4, 3))) >= 0).numpy().all())
    True
    """

    def forward(self, inp: Tensor) -> Tensor:
        return relu(self.calc_linear(inp, self.weight, self.bias))
