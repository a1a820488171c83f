"""Dynamic tensor rematerialisation: dropping values under memory pressure and computing them again.

The settings ``eviction_threshold``, ``evictee_minimum_size`` and ``enable_sqrt_sampling`` are kept and read back; the
engine frees values as soon as nobody needs them and drops nothing else.

>>> from megengine import dtr
>>> dtr.eviction_threshold = "1.5 KB"
>>> dtr.eviction_threshold
1536
>>> dtr.eviction_threshold = 0
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from ..core import get_option, set_option
from .dtr import _bytes, disable, enable

if TYPE_CHECKING:
    eviction_threshold: int
    evictee_minimum_size: int
    enable_sqrt_sampling: bool


class _Dtr(ModuleType):
    @property
    def eviction_threshold(self) -> int:
        """Bytes in use above which values may be dropped; set it as a number or as ``"2GB"``. Default 0: no limit."""
        return get_option("dtr_eviction_threshold")

    @eviction_threshold.setter
    def eviction_threshold(self, value: int | str) -> None:
        set_option("dtr_eviction_threshold", _bytes("eviction_threshold", value))

    @property
    def evictee_minimum_size(self) -> int:
        """The smallest value that may be dropped, as a number or as ``"1MB"``. Default 1 MB."""
        return get_option("dtr_evictee_minimum_size")

    @evictee_minimum_size.setter
    def evictee_minimum_size(self, value: int | str) -> None:
        set_option("dtr_evictee_minimum_size", _bytes("evictee_minimum_size", value))

    @property
    def enable_sqrt_sampling(self) -> bool:
        """Look at a sample of the values when choosing what to drop. Default False."""
        return bool(get_option("enable_dtr_sqrt_sampling"))

    @enable_sqrt_sampling.setter
    def enable_sqrt_sampling(self, value: bool) -> None:
        set_option("enable_dtr_sqrt_sampling", int(bool(value)))


sys.modules[__name__].__class__ = _Dtr
