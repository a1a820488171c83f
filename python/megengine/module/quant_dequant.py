"""Marks of where quantised computation begins and ends."""

from __future__ import annotations

from ..tensor import Tensor
from .module import Module

__all__ = ["DequantStub", "QuantStub"]


class QuantStub(Module):
    """Where quantised computation begins; changes nothing in a float network."""

    def forward(self, inp: Tensor) -> Tensor:
        return inp


class DequantStub(Module):
    """Where quantised computation ends; changes nothing in a float network."""

    def forward(self, inp: Tensor) -> Tensor:
        return inp
