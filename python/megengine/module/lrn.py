"""Local response normalisation."""

from __future__ import annotations

from typing import Any

from ..functional import local_response_norm
from ..tensor import Tensor
from .module import Module


class LocalResponseNorm(Module):
    """x * (k + alpha * sum of squares over neighbouring channels) ** -beta.

    >>> M.LocalResponseNorm()(F.ones((1, 3, 2, 2))).shape
    (1, 3, 2, 2)
    """

    def __init__(
        self, kernel_size: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.k = k
        self.alpha = alpha
        self.beta = beta

    def forward(self, inp: Tensor) -> Tensor:
        return local_response_norm(inp, self.kernel_size, self.k, self.alpha, self.beta)
