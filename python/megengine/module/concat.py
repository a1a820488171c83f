"""Joining tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ..functional import concat
from ..tensor import Tensor
from .module import Module


class Concat(Module):
    """Joins tensors along an axis.

    >>> M.Concat()([mge.tensor([1.0]), mge.tensor([2.0])]).tolist()
    [1.0, 2.0]
    """

    def forward(self, inps: Sequence[Tensor], axis: int = 0) -> Tensor:
        return concat(inps, axis)
