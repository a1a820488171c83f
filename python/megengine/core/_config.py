"""Names of the original's private module that programs import: settings of the engine and what reads them.

The settings themselves are those of ``megengine.config``.

>>> from megengine.core import _config
>>> _config.get_auto_format_convert(), _config.bn_format
(True, 'dim_1c11')
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import config
from . import get_option as get_option
from . import set_option as set_option

#: Names here -> attributes of megengine.config.
_NAMES = {
    "benchmark_kernel": "benchmark_kernel",
    "benchmark_with_subprocess": "benchmark_with_subprocess",
    "deterministic_kernel": "deterministic_kernel",
    "async_level": "async_level",
    "disable_memory_forwarding": "disable_memory_forwarding",
    "_compute_mode": "_compute_mode",
    "_auto_format_convert": "_auto_format_convert",
    "_bn_format": "_bn_format",
    "bn_format": "_bn_format",
    "compute_mode": "_compute_mode",
}

if TYPE_CHECKING:
    benchmark_kernel: bool
    benchmark_with_subprocess: bool
    deterministic_kernel: bool
    async_level: int
    disable_memory_forwarding: bool
    _compute_mode: str
    _auto_format_convert: bool
    _bn_format: str
    bn_format: str
    compute_mode: str

_override = config._override


def get_auto_format_convert() -> bool:
    """Whether tensors keep their ``nhwc`` label through ops."""
    return config._auto_format_convert


def set_auto_format_convert(option: bool) -> bool:
    """Set it, and get what it was.

    >>> from megengine.core import _config
    >>> was = _config.set_auto_format_convert(False)
    >>> _config.set_auto_format_convert(was), _config.get_auto_format_convert()
    (False, True)
    """
    old, config._auto_format_convert = config._auto_format_convert, option
    return old


def _delegate(name: str) -> property:
    return property(lambda self: getattr(config, name), lambda self, value: setattr(config, name, value))


class _Config(ModuleType):
    pass


for _name, _target in _NAMES.items():
    setattr(_Config, _name, _delegate(_target))


def __dir__() -> list[Any]:
    return sorted({*globals(), *_NAMES})


sys.modules[__name__].__class__ = _Config
