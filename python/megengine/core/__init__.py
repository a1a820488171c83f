"""The private core: the compiled extension and what sits directly on it."""

from __future__ import annotations

import os
import sys
from types import ModuleType

# The extension cannot be loaded twice into a process. A program that removes megengine from sys.modules and imports it
# again gets the one there is, kept under a name that does not begin with the package's.
_KEPT = "_megengine_core"
if _KEPT in sys.modules:
    sys.modules[f"{__name__}._core"] = sys.modules[_KEPT]
    sys.modules[f"{__name__}._core.ops"] = sys.modules[_KEPT].ops
try:
    from . import _core
except ImportError as e:
    raise ImportError(
        f"megengine: the compiled extension core/_core in {os.path.dirname(os.path.abspath(__file__))} is missing or "
        f"does not load ({e.__cause__ or e}). Install the wheel for this Python, or build it: pip install . in the "
        "source tree."
    ) from e

sys.modules[_KEPT] = _core

from ._lazy import submodule  # noqa: E402

__all__ = ["get_option", "set_option"]

# Errors name the innermost line outside this folder.
_core.set_package_dir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep)

#: Options of the original that this engine has no use for yet; values are kept for callers that set and read them.
_kept = {
    "enable_drop": 0,
    "max_recompute_time": 1,
    "catch_worker_execption": 1,
    "disable_memory_forwarding": 0,
    "enable_dtr_auto_drop": 0,
    "enable_dtr_sqrt_sampling": 0,
    "dtr_eviction_threshold": 0,
    "dtr_evictee_minimum_size": 1 << 20,
    "record_computing_path": 0,
}


def get_option(name: str) -> int:
    """The value of an engine option.

    >>> from megengine.core import get_option
    >>> get_option("async_level")
    2
    """
    return _kept[name] if name in _kept else _core.get_option(name)


def set_option(name: str, value: int) -> None:
    """Set an engine option."""
    if name in _kept:
        _kept[name] = int(value)
    else:
        _core.set_option(name, int(value))


_core.get_num_threads()  # a wrong MGE_NUM_THREADS is told now, not by the first op

#: Environment variables that set options at import.
_VARIABLES = {
    "MEGENGINE_INTERP_ASYNC_LEVEL": "async_level",
    "MEGENGINE_HOST_COMPUTE": "enable_host_compute",
    "MEGENGINE_DISABLE_MEMORY_FORWARDING": "disable_memory_forwarding",
    "MEGENGINE_ENABLE_DROP": "enable_drop",
    "MEGENGINE_MAX_RECOMP_TIME": "max_recompute_time",
    "MEGENGINE_CATCH_WORKER_EXEC": "catch_worker_execption",
    "MEGENGINE_RECORD_COMPUTING_PATH": "record_computing_path",
    "MEGENGINE_DTR_AUTO_DROP": "enable_dtr_auto_drop",
    "MEGENGINE_DTR_SQRT_SAMPLING": "enable_dtr_sqrt_sampling",
    "MEGENGINE_DTR_EVICTION_THRESHOLD": "dtr_eviction_threshold",
    "MEGENGINE_DTR_EVICTEE_MINIMUM_SIZE": "dtr_evictee_minimum_size",
}
for _variable, _option in _VARIABLES.items():
    if _given := os.environ.get(_variable):
        try:
            _number = int(_given)
        except ValueError:
            raise ValueError(f"{_variable}: needs an integer; got {_given!r}. Unset it or mend it.") from None
        set_option(_option, _number)


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
