"""Where quantised computation begins and ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensor import Tensor
from .module import QuantizedModule


class QuantStub(QuantizedModule):
    """Quantises its input."""

    def __init__(self, dtype: np.dtype[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inp: Tensor) -> Tensor:
        return self._result(inp.astype(self.output_dtype))

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> QuantStub:
        made = cls(name=qat_module.name)
        made._take_output(qat_module)
        return made


class DequantStub(QuantizedModule):
    """The real numbers that its input stands for."""

    def forward(self, inp: Tensor) -> Tensor:
        return inp.astype("float32")

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> DequantStub:
        made = cls(name=qat_module.name)
        made.training = qat_module.training
        return made
