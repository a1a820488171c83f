"""Dropout."""

from __future__ import annotations

from typing import Any

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
        self.drop_prob = drop_prob

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        return str(error).removeprefix("dropout: ") if str(error).startswith("dropout: drop_prob") else None

    def forward(self, inputs: Tensor) -> Tensor:
        return dropout(inputs, self.drop_prob, training=self.training) if self.training else inputs

    def _module_info_string(self) -> str:
        return f"drop_prob={self.drop_prob}"
