"""The shared library and the one way to call it: C functions return 0, or -1 with a text for a RuntimeError."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, cast

from .struct import LiteLogLevel

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["call", "check_misc", "config_env", "find_library", "get_log_level", "lib", "set_log_level"]


def config_env() -> None:
    """What has to be in the environment before the library is loaded: CUDA kernels are loaded when they are used.

    Loading all of them at start costs hundreds of megabytes, and the driver reads this before it is initialised.
    ``ALREADY_CONFIG_CUDA_LOADING_MODE`` leaves the environment alone.
    """
    if "ALREADY_CONFIG_CUDA_LOADING_MODE" not in os.environ:
        os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")


def _library() -> str:
    given = os.environ.get("LITE_LIB_PATH")
    folder = given or os.path.join(os.path.dirname(os.path.abspath(__file__)), "libs")
    if os.path.isfile(folder):
        return folder
    kinds = (("liblite", ".so"), ("liblite", ".dylib"), ("lite", ".dll"))
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [name for begin, end in kinds for name in names if name.startswith(begin) and name.endswith(end)]
    if not found:
        hint = "LITE_LIB_PATH points there" if given else "build it with `make build`, or set LITE_LIB_PATH"
        raise ImportError(f"megenginelite: no liblite.so in {folder}; {hint}.")
    return os.path.join(folder, min(found))


def find_library() -> Path:
    """``$LITE_LIB_PATH`` (a file, or a folder that holds one), else ``libs/liblite*.so`` of this package."""
    from pathlib import Path  # here: it takes a good part of the time that importing this package does

    return Path(_library())


def _load() -> ctypes.CDLL:
    config_env()
    loaded = ctypes.CDLL(_library())
    loaded.LITE_get_last_error.restype = ctypes.c_char_p
    return loaded


lib = _load()


class _Raised(threading.local):
    """What Python code that the library called on this thread has raised; C cannot carry it."""

    error: BaseException | None = None


raised = _Raised()


@cache
def function(name: str, *argtypes: Any) -> Callable[..., int]:
    """``LITE_<name>`` with its C types, which never change: 0, or -1 for ``fail``."""
    found = getattr(lib, "LITE_" + name)
    found.argtypes = argtypes
    found.restype = ctypes.c_int
    return cast(Callable[..., int], found)


def fail() -> NoReturn:
    """Raise RuntimeError with the library's text, after a function of it has returned -1."""
    cause, raised.error = raised.error, None
    raise RuntimeError(lib.LITE_get_last_error().decode("utf-8", "replace")) from cause


def call(name: str, argtypes: Sequence[Any], *args: Any) -> None:
    """Call ``LITE_<name>`` with C types ``argtypes``; raise RuntimeError with the library's text when it fails."""
    if function(name, *argtypes)(*args):
        fail()


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
            f"megenginelite: {_library()} does not fit this package: it has no {', '.join(missing)}. Unset "
            "LITE_LIB_PATH, or give it the library of the same version."
        )


# The youngest functions that this package calls: a library that has them has all.
_NEEDED = ("LITE_get_version", "LITE_get_discrete_tensor", "LITE_extra_configure", "LITE_set_tensor_rt_cache")
check_misc()
