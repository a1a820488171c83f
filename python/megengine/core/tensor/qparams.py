"""Quantisation parameters that travel with a tensor."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

import numpy as np

from .dtype import QuantDtypeMeta, _builtin_quant_dtypes

#: The module that files name for these classes.
_IN_FILES = "megengine.quantization.utils"
_T = TypeVar("_T")


class QuantMode(Enum):
    """Whether zero is at q = 0. The spelling is the API's."""

    __module__ = _IN_FILES

    SYMMERTIC = 1
    ASYMMERTIC = 2


class QParams:
    """Mode, range, scale and zero point."""

    __module__ = _IN_FILES

    __slots__ = ("mode", "dtype_meta", "scale", "zero_point")

    def __init__(self, mode: QuantMode | None, dtype_meta: QuantDtypeMeta | None, scale: Any, zero_point: Any) -> None:
        self.mode = mode
        self.dtype_meta = dtype_meta
        self.scale = scale
        self.zero_point = zero_point

    def update(self, qparams: QParams) -> None:
        """Take over every field of ``qparams``."""
        for key in self.__slots__:
            setattr(self, key, getattr(qparams, key))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QParams) or self.__slots__ != other.__slots__:
            return False
        return all(_same(getattr(self, k), getattr(other, k)) for k in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"QParams({', '.join(f'{k}={getattr(self, k)}' for k in self.__slots__)})"


class LSQParams(QParams):
    """Those of a learnt step, which also say by what its gradient is multiplied."""

    __module__ = _IN_FILES

    __slots__ = (*QParams.__slots__, "grad_scale")

    def __init__(
        self, mode: QuantMode | None, dtype_meta: QuantDtypeMeta | None, scale: Any, zero_point: Any, grad_scale: Any
    ) -> None:
        super().__init__(mode, dtype_meta, scale, zero_point)
        self.grad_scale = grad_scale


def _same(a: Any, b: Any) -> bool:
    """Equal; numbers, arrays and tensors by value, also those with a scale per channel."""
    if a is None or b is None or isinstance(a, (QuantMode, QuantDtypeMeta)):
        return bool(a == b)
    x, y = (v.numpy() if hasattr(v, "numpy") else v for v in (a, b))
    return np.array_equal(x, y)


def as_integers_of(x: Any, y: _T) -> _T:
    """``y``, whose elements are elements of the tensor ``x`` or 0: simulated integers if those of ``x`` are."""
    if getattr(x, "_simulated", False):
        marked: Any = y
        marked.qparams.update(x.qparams)
        marked._mark_simulated()
    return y


def create_qparams(
    mode: QuantMode | None = QuantMode.SYMMERTIC,
    dtype_meta: str | QuantDtypeMeta | None = None,
    scale: Any = None,
    zero_point: Any = None,
) -> QParams:
    """QParams; ``dtype_meta`` may be the name of a built-in quantised type.

    >>> from megengine.core.tensor.qparams import create_qparams
    >>> create_qparams(dtype_meta="qint8", scale=0.5).dtype_meta.qmax
    127
    """
    if isinstance(dtype_meta, str):
        dtype_meta = _builtin_quant_dtypes[dtype_meta]
    return QParams(mode, dtype_meta, scale, zero_point)
