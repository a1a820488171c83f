"""Where quantised computation begins and ends."""

from __future__ import annotations

from ...tensor import Tensor
from .. import quant_dequant as Float
from .module import QATModule


class QuantStub(Float.QuantStub, QATModule):
    """Simulates quantisation of what comes in."""

    with_weight = False

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(inp)

    @classmethod
    def from_float_module(cls, float_module: Float.QuantStub) -> QuantStub:
        return cls(name=float_module.name)


class DequantStub(Float.DequantStub, QATModule):
    """Changes no value: simulated ones are floats already. What comes out is no longer taken for integers."""

    with_weight = False
    with_act = False

    def forward(self, inp: Tensor) -> Tensor:
        return inp if inp._qparams is None else Tensor(inp)

    @classmethod
    def from_float_module(cls, float_module: Float.DequantStub) -> DequantStub:
        return cls(name=float_module.name)
