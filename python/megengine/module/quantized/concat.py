"""Joining quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...functional import concat
from ...tensor import Tensor
from .module import QuantizedModule


class Concat(QuantizedModule):
    """``megengine.module.Concat`` on quantised tensors: each is converted to the result's dtype first."""

    def __init__(self, dtype: np.dtype[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inps: Sequence[Tensor], axis: int = 0) -> Tensor:
        return self._result(concat([x.astype(self.output_dtype) for x in inps], axis))

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Concat:
        made = cls(name=qat_module.name)
        made._take_output(qat_module)
        return made
