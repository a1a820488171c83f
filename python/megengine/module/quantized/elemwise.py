"""Elementwise functions of quantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensor import Tensor
from .module import QuantizedModule


class Elemwise(QuantizedModule):
    """``megengine.module.Elemwise`` on quantised tensors: the function of their real values, quantised."""

    def __init__(self, method: str, dtype: np.dtype[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = "q" + method  # as MegEngine's checkpoints have it
        self.output_dtype = dtype
        self._op()  # an unknown name is an error here, not at the first call

    def _op(self) -> Any:
        from ...core.ops import builtin  # when first used, as in the float module

        op: Any = builtin.ElemwiseMultiType
        name = self.method.upper()
        if name not in op.Mode.names:
            known = ", ".join(sorted(n[1:] for n in op.Mode.names if n[0] == "Q")).lower()
            raise ValueError(f"Quantized.Elemwise: no quantised method {self.method[1:]!r}. Known: {known}.")
        return op(mode=name, dtype=self.output_dtype)

    def forward(self, *inps: Tensor) -> Tensor:
        from ...core._imperative_rt.core2 import apply

        return self._result(apply(self._op(), *inps)[0])

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Elemwise:
        made = cls(qat_module.method, name=qat_module.name)
        made._take_output(qat_module)
        return made
