"""A fake quantisation with fixed parameters, in place of one that a user defined."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.tensor.dtype import QuantDtypeMeta
from ..quantization.fake_quant import _FakeQuantize
from ..quantization.utils import QParams, QParamsModuleMixin, QuantMode, create_qparams, fake_quant_tensor
from ..tensor import Tensor

__all__ = ["FakeQuantize"]


class FakeQuantize(_FakeQuantize, QParamsModuleMixin):
    """Rounds to a scale that does not change. ``set_qparams`` gives it the scale.

    Args:
        dtype: name of the quantised dtype.
        enable: whether to simulate from the beginning.

    >>> from megengine.quantization import create_qparams
    >>> from megengine.traced_module.fake_quant import FakeQuantize
    >>> fixed = FakeQuantize("qint8")
    >>> fixed.set_qparams(create_qparams(dtype_meta="qint8", scale=0.5))
    >>> fixed(mge.tensor([0.3])).tolist()
    [0.5]
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        super().__init__(dtype, enable, **kwargs)
        self.mode: QuantMode | None = None
        self.scale: Any = None
        self.zero_point: Any = None

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """Simulate; the parameters are its own."""
        return fake_quant_tensor(inp, self.get_qparams() if qparams is None or self.scale is not None else qparams)

    def get_qparams(self) -> QParams:
        """The parameters that were set."""
        return create_qparams(self.mode, self.dtype, self.scale, self.zero_point)

    def set_qparams(self, qparams: QParams) -> None:
        """Use these parameters from now on."""
        assert qparams.dtype_meta is None or qparams.dtype_meta == self.dtype, (
            f"set_qparams: the parameters are for {qparams.dtype_meta}, this module for {self.dtype}."
        )
        self.dtype = self.dtype if qparams.dtype_meta is None else qparams.dtype_meta
        self.mode = qparams.mode
        self.scale = _fixed(qparams.scale)
        self.zero_point = _fixed(qparams.zero_point)


def _fixed(value: Any) -> Any:
    """A tensor that nothing else changes."""
    if value is None:
        return None
    return Tensor(value.numpy() if isinstance(value, Tensor) else np.asarray(value), dtype="float32")
