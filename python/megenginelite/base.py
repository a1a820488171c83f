"""The shared library and the one way to call it: C functions return 0, or -1 with a text for a RuntimeError."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["call", "find_library", "lib"]


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
    # Loading all CUDA kernels at start costs hundreds of megabytes; the driver reads this before it is initialised.
    if "ALREADY_CONFIG_CUDA_LOADING_MODE" not in os.environ:
        os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    loaded = ctypes.CDLL(str(find_library()))
    loaded.LITE_get_last_error.restype = ctypes.c_char_p
    return loaded


lib = _load()
_ready: set[str] = set()


def call(name: str, argtypes: Sequence[Any], *args: Any) -> None:
    """Call ``LITE_<name>`` with C types ``argtypes``; raise RuntimeError with the library's text when it fails."""
    function = getattr(lib, "LITE_" + name)
    if name not in _ready:  # the types of a function never change: set them once
        function.argtypes = list(argtypes)
        function.restype = ctypes.c_int
        _ready.add(name)
    if function(*args) != 0:
        raise RuntimeError(lib.LITE_get_last_error().decode("utf-8", "replace"))
