"""The shared library and the one way to call it: C functions return 0, or -1 with a text for a RuntimeError."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .struct import LiteLogLevel

__all__ = ["call", "check_misc", "config_env", "find_library", "get_log_level", "lib", "set_log_level"]


def config_env() -> None:
    """What has to be in the environment before the library is loaded: CUDA kernels are loaded when they are used.

    Loading all of them at start costs hundreds of megabytes, and the driver reads this before it is initialised.
    ``ALREADY_CONFIG_CUDA_LOADING_MODE`` leaves the environment alone.
    """
    if "ALREADY_CONFIG_CUDA_LOADING_MODE" not in os.environ:
        os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")


def find_library() -> Path:
    """``$LITE_LIB_PATH`` (a file, or a folder that holds one), else ``libs/liblite*.so`` of this package."""
    given = os.environ.get("LITE_LIB_PATH")
    folder = Path(given) if given else Path(__file__).parent / "libs"
    if folder.is_file():
        return folder
    found = sorted(p for pattern in ("liblite*.so", "liblite*.dylib", "lite*.dll") for p in folder.glob(pattern))
    if not found:
        hint = "LITE_LIB_PATH points there" if given else "build it with `make build`, or set LITE_LIB_PATH"
        raise ImportError(f"megenginelite: no liblite.so in {folder}; {hint}.")
    return found[0]


def _load() -> ctypes.CDLL:
    config_env()
    loaded = ctypes.CDLL(str(find_library()))
    loaded.LITE_get_last_error.restype = ctypes.c_char_p
    return loaded


lib = _load()
_ready: set[str] = set()


class _Raised(threading.local):
    """What Python code that the library called on this thread has raised; C cannot carry it."""

    error: BaseException | None = None


raised = _Raised()


def call(name: str, argtypes: Sequence[Any], *args: Any) -> None:
    """Call ``LITE_<name>`` with C types ``argtypes``; raise RuntimeError with the library's text when it fails."""
    function = getattr(lib, "LITE_" + name)
    if name not in _ready:  # the types of a function never change: set them once
        function.argtypes = list(argtypes)
        function.restype = ctypes.c_int
        _ready.add(name)
    if function(*args) != 0:
        cause, raised.error = raised.error, None
        raise RuntimeError(lib.LITE_get_last_error().decode("utf-8", "replace")) from cause


def set_log_level(level: LiteLogLevel | int) -> None:
    """Messages below this level are not written to stderr; ERROR at first."""
    call("set_log_level", [ctypes.c_int], int(level))


def get_log_level() -> LiteLogLevel:
    level = ctypes.c_int()
    call("get_log_level", [ctypes.POINTER(ctypes.c_int)], ctypes.byref(level))
    return LiteLogLevel(level.value)


def check_misc() -> None:
    """Raise RuntimeError when the library is not one that this package can call: another $LITE_LIB_PATH, say."""
    missing = [name for name in _NEEDED if not hasattr(lib, name)]
    if missing:
        raise RuntimeError(
            f"megenginelite: {find_library()} does not fit this package: it has no {', '.join(missing)}. Unset "
            "LITE_LIB_PATH, or give it the library of the same version."
        )


# The youngest functions that this package calls: a library that has them has all.
_NEEDED = ("LITE_get_version", "LITE_get_discrete_tensor", "LITE_extra_configure", "LITE_set_tensor_rt_cache")
check_misc()
