"""Dropout."""

from __future__ import annotations

from typing import Any

from ..core.tensor.utils import ArgumentError
from ..functional import dropout
from ..tensor import Tensor
from .module import Module


class Dropout(Module):
    """Zeroes elements at random in training and scales the others; returns its input in evaluation.

    >>> m = M.Dropout(0.5)
    >>> m.eval()
    >>> x = mge.tensor([1.0])
    >>> m(x) is x
    True
    """

    def __init__(self, drop_prob: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= drop_prob < 1:
            raise ArgumentError(f"Dropout: drop_prob must be at least 0 and below 1; got {drop_prob}.")
        self.drop_prob = drop_prob

    def forward(self, inputs: Tensor) -> Tensor:
        return dropout(inputs, self.drop_prob, training=self.training) if self.training else inputs

    def _module_info_string(self) -> str:
        return f"drop_prob={self.drop_prob}"
