"""Names of the original's private module that programs read: ``amp._enabled`` and the two dtypes, as they are now.

>>> from megengine.core.tensor import amp
>>> with mge.amp.autocast():
...     amp._enabled, amp._low_prec_dtype
(True, 'float16')
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import _amp

if TYPE_CHECKING:
    _enabled: bool
    _low_prec_dtype: str
    _high_prec_dtype: str


def _setting(get: Callable[[], Any], put: Callable[[Any], Any]) -> property:
    def assign(_: ModuleType, value: Any) -> None:
        put(value)

    return property(lambda _: get(), assign)


class _Amp(ModuleType):
    _enabled = _setting(_amp.enabled, _amp.set_enabled)
    _low_prec_dtype = _setting(_amp.low_prec_dtype, _amp.set_low_prec_dtype)
    _high_prec_dtype = _setting(_amp.high_prec_dtype, _amp.set_high_prec_dtype)


_get_amp_dtype_autocast = _amp.enabled
_get_amp_high_prec_dtype = _amp.high_prec_dtype
_get_amp_low_prec_dtype = _amp.low_prec_dtype
_set_amp_dtype_autocast = _amp.set_enabled
_set_amp_high_prec_dtype = _amp.set_high_prec_dtype
_set_amp_low_prec_dtype = _amp.set_low_prec_dtype
sys.modules[__name__].__class__ = _Amp
