"""Names of the original's private module that programs read: ``amp._enabled`` and the two dtypes, as they are now.

>>> from megengine.core.tensor import amp
>>> with mge.amp.autocast():
...     amp._enabled, amp._low_prec_dtype
(True, 'float16')
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from .. import _amp

if TYPE_CHECKING:
    _enabled: bool
    _low_prec_dtype: str
    _high_prec_dtype: str


class _Amp(ModuleType):
    _enabled = property(lambda self: _amp.enabled(), lambda self, value: _amp.set_enabled(value))
    _low_prec_dtype = property(lambda self: _amp.low_prec_dtype(), lambda self, name: _amp.set_low_prec_dtype(name))
    _high_prec_dtype = property(lambda self: _amp.high_prec_dtype(), lambda self, name: _amp.set_high_prec_dtype(name))


sys.modules[__name__].__class__ = _Amp
