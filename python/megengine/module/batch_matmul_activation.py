"""A product with one matrix per batch element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..functional import matmul, relu
from ..tensor import Parameter, Tensor
from . import init
from .module import Module


class BatchMatMulActivation(Module):
    """weight @ x + bias with a weight per batch element, and relu if asked for.

    >>> M.BatchMatMulActivation(2, 3, 4)(F.ones((2, 3, 5))).shape
    (2, 4, 5)
    """

    def __init__(
        self,
        batch: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinear_mode: str = "identity",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.batch = batch
        self.in_features = in_features
        self.out_features = out_features
        self.nonlinear_mode = nonlinear_mode.lower()
        if self.nonlinear_mode not in ("identity", "relu"):
            raise ValueError(f"BatchMatMulActivation: nonlinear_mode identity or relu; got {nonlinear_mode!r}.")
        self.weight = Parameter(np.zeros((batch, out_features, in_features), dtype=np.float32))
        self.bias = Parameter(np.zeros(out_features, dtype=np.float32)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal numbers with variance 1 / in_features; the bias is 0."""
        init.normal_(self.weight, 0.0, math.sqrt(1.0 / self.in_features))
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        y = matmul(self.weight, x)
        if self.bias is not None:
            y = y + self.bias.reshape(-1, 1)  # stored as (out,), added to each row
        return relu(y) if self.nonlinear_mode == "relu" else y

    def _module_info_string(self) -> str:
        return (
            f"batch={self.batch}, in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
