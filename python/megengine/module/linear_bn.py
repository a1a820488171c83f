"""Fully connected layer and batch normalisation as one module."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functional import relu
from ..tensor import Parameter, Tensor
from .batchnorm import BatchNorm1d
from .linear import Linear
from .module import Module

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class _LinearBnActivation1d(Module):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        compute_mode: str = "default",
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.in_features = in_features
        self.out_features = out_features
        self.linear = Linear(in_features, out_features, bias, compute_mode, **kwargs)
        self.bn = BatchNorm1d(out_features, eps, momentum, affine, track_running_stats)
        # Unused, but MegEngine's checkpoints of this module hold it.
        self.bias = Parameter(np.zeros(out_features, dtype=np.float32)) if bias else None


class LinearBn1d(_LinearBnActivation1d):
    """Fully connected layer, then batch normalisation.

    >>> M.LinearBn1d(3, 2)(F.ones((4, 3))).shape
    (4, 2)
    """

    def forward(self, inp: Tensor) -> Tensor:
        y: Tensor = self.bn(self.linear(inp))
        return y


class LinearBnRelu1d(_LinearBnActivation1d):
    """Fully connected layer, batch normalisation, relu.

    >>> M.LinearBnRelu1d(3, 2)(F.ones((4, 3))).shape
    (4, 2)
    """

    def forward(self, inp: Tensor) -> Tensor:
        return relu(self.bn(self.linear(inp)))
