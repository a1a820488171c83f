"""Mixed precision: products and convolutions in half precision, the rest where it is safe.

The properties ``enabled``, ``low_prec_dtype`` and ``high_prec_dtype`` can be read and set. They are of the calling
thread: a new one starts with the defaults.

>>> from megengine import amp
>>> with amp.autocast():
...     y = F.matmul(F.ones((2, 2)), F.ones((2, 2)))
>>> y.dtype, amp.enabled
(dtype('float16'), False)
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from ..core import _amp
from .autocast import autocast
from .convert_format import convert_module_format, convert_tensor_format
from .grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "autocast",
    "convert_module_format",
    "convert_tensor_format",
    "enabled",
    "high_prec_dtype",
    "low_prec_dtype",
]

if TYPE_CHECKING:
    enabled: bool
    low_prec_dtype: str
    high_prec_dtype: str


class _Amp(ModuleType):
    @property
    def enabled(self) -> bool:
        """Whether ops cast their inputs now. Default False."""
        return _amp.enabled()

    @enabled.setter
    def enabled(self, value: bool) -> None:
        _amp.set_enabled(value)

    @property
    def low_prec_dtype(self) -> str:
        """The dtype of products and convolutions. Default ``"float16"``."""
        return _amp.low_prec_dtype()

    @low_prec_dtype.setter
    def low_prec_dtype(self, dtype: str) -> None:
        _amp.set_low_prec_dtype(dtype)

    @property
    def high_prec_dtype(self) -> str:
        """The dtype of sensitive ops. Default ``"float32"``."""
        return _amp.high_prec_dtype()

    @high_prec_dtype.setter
    def high_prec_dtype(self, dtype: str) -> None:
        _amp.set_high_prec_dtype(dtype)


sys.modules[__name__].__class__ = _Amp
