"""Modules that simulate quantisation."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from .. import functional as F
from ..core.tensor.dtype import QuantDtypeMeta, _builtin_quant_dtypes
from ..logger import get_logger
from ..module.module import Module
from ..tensor import Parameter, Tensor
from .utils import (
    LSQParams,
    QParams,
    QParamsModuleMixin,
    QuantMode,
    create_qparams,
    fake_quant_tensor,
    lsq_forward,
    tqt_forward,
)

__all__ = ["LSQ", "TQT", "FakeQuantize"]

logger = get_logger(__name__)


def _dtype_meta(dtype: str | QuantDtypeMeta, kwargs: dict[str, Any]) -> QuantDtypeMeta:
    """What a name of a quantised dtype stands for."""
    if kwargs.pop("narrow_range", None) is not None:
        logger.warning("narrow_range has no effect; use the dtype qint8_narrow, or a QuantDtypeMeta with another qmin")
    if isinstance(dtype, str):
        if dtype not in _builtin_quant_dtypes:
            raise ValueError(f"unknown dtype: {dtype}, only support {', '.join(_builtin_quant_dtypes)}")
        return _builtin_quant_dtypes[dtype]
    if not isinstance(dtype, QuantDtypeMeta):
        raise ValueError(f"dtype must be a name or a QuantDtypeMeta; got {type(dtype).__name__}.")
    return dtype


def _check_dtype(qparams: QParams, dtype: QuantDtypeMeta) -> None:
    assert qparams.dtype_meta is dtype, (
        f"input qparams' dtype is not equal to self.dtype.\nqparams.dtype_meta={qparams.dtype_meta}\nself.dtype={dtype}"
    )


def _number(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else Tensor(value, dtype="float32")


class _FakeQuantize(Module):
    """What fake-quant modules share: the range, and whether they do anything."""

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        meta = _dtype_meta(dtype, kwargs)
        super().__init__(**kwargs)
        self.dtype = meta
        self.qmin = self.dtype.qmin
        self.qmax = self.dtype.qmax
        self.enabled = enable

    def enable(self) -> None:
        """Simulate quantisation from now on."""
        self.enabled = True

    def disable(self) -> None:
        """Hand inputs on as they are."""
        self.enabled = False

    @abstractmethod
    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """The simulation."""

    def normal_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """What happens while disabled."""
        return inp

    def forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        return self.fake_quant_forward(inp, qparams) if self.enabled else self.normal_forward(inp, qparams)


class FakeQuantize(_FakeQuantize):
    """Simulates quantisation with the parameters that an observer gives.

    >>> from megengine.quantization import FakeQuantize, create_qparams
    >>> FakeQuantize("qint8")(mge.tensor([0.3]), create_qparams(dtype_meta="qint8", scale=0.5)).tolist()
    [0.5]
    """

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        assert qparams is not None, "FakeQuantize: needs the qparams of an observer; QATModule.set_qconfig gives both."
        _check_dtype(qparams, self.dtype)
        return fake_quant_tensor(inp, qparams)


class TQT(_FakeQuantize, QParamsModuleMixin):
    """Simulates quantisation with a power of two as scale, whose exponent is learnt (Jain et al., 2019).

    >>> from megengine.quantization import TQT
    >>> TQT("qint8")(mge.tensor([0.3, 1.6])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        super().__init__(dtype, enable, **kwargs)
        self.scale = Parameter(0.0, dtype="float32")  # the exponent

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        return tqt_forward(self.qmin, self.qmax, inp, self.scale)

    def set_qparams(self, qparams: QParams) -> None:
        """Begin with this scale."""
        assert qparams.mode is QuantMode.SYMMERTIC, "only symmetric quantization is supported by TQT"
        if qparams.scale is None:
            raise AssertionError("Can not get an initialized scale")
        self.scale._reset(Tensor(np.log2(_number(qparams.scale).numpy())))

    def get_qparams(self) -> QParams:
        return create_qparams(QuantMode.SYMMERTIC, self.dtype, scale=2.0**self.scale)


class LSQ(_FakeQuantize, QParamsModuleMixin):
    """Simulates quantisation with a step that is learnt (Esser et al., 2019).

    Args:
        dtype: name of the quantised dtype.
        enable: whether to simulate from the beginning.
        eps: the least step.

    >>> from megengine.quantization import LSQ
    >>> LSQ("qint8")(mge.tensor([0.3, 1.6])).tolist()
    [0.0, 2.00002...]
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(dtype, enable, **kwargs)
        self.eps = Tensor(eps, dtype="float32")
        self.step_size = Parameter(1.0, dtype="float32")
        self.mode: QuantMode | None = None
        self.zero_point = Tensor(0.0, dtype="float32")
        self.grad_scale = Tensor(1.0, dtype="float32")

    def set_qparams(self, qparams: QParams) -> None:
        """Begin with this scale, zero point and, from LSQParams, factor of the gradient."""
        self.mode = qparams.mode
        if qparams.mode is QuantMode.ASYMMERTIC:
            self.zero_point._reset(_number(qparams.zero_point))
        if isinstance(qparams, LSQParams) and qparams.grad_scale is not None:
            self.grad_scale._reset(_number(qparams.grad_scale))
        self.step_size._reset(F.maximum(_number(qparams.scale) - self.eps, 0.0))

    def _step(self) -> Tensor:
        return F.abs(self.step_size) + self.eps

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        return lsq_forward(self.qmin, self.qmax, inp, self._step(), self.zero_point, self.grad_scale)

    def get_qparams(self) -> LSQParams:
        return LSQParams(self.mode, self.dtype, self._step(), self.zero_point, self.grad_scale)
