"""Settings that belong to no network."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from .base import call, raised
from .network import LiteNetwork, get_model_io_info, start_finish_callback, wrap_async_callback
from .struct import (
    LiteAlgoSelectStrategy,
    LiteBackend,
    LiteConfig,
    LiteDataType,
    LiteDeviceType,
    LiteExtraConfig,
    LiteIO,
    LiteIOType,
    LiteLayout,
    LiteLogLevel,
    LiteNetworkIO,
    LiteOptions,
    LiteTensorPhase,
    lite_dtype_2_numpy,
)
from .tensor import LiteTensor, LiteTensorConcat

__all__ = [  # with what the original's module of this name has
    "LiteAlgoSelectStrategy",
    "LiteBackend",
    "LiteConfig",
    "LiteDataType",
    "LiteDeviceType",
    "LiteExtraConfig",
    "LiteGlobal",
    "LiteIO",
    "LiteIOType",
    "LiteLayout",
    "LiteLogLevel",
    "LiteNetwork",
    "LiteNetworkIO",
    "LiteOptions",
    "LiteTensor",
    "LiteTensorConcat",
    "LiteTensorPhase",
    "decryption_func",
    "get_model_io_info",
    "get_version",
    "lite_dtype_2_numpy",
    "start_finish_callback",
    "wrap_async_callback",
]

LiteDecryptionFunc = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_uint8),
    ctypes.c_size_t,
    ctypes.c_void_p,
)
_keys = [ctypes.c_char_p, LiteDecryptionFunc, ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t]
_pair = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int]


def get_version() -> str:
    numbers = [ctypes.c_int() for _ in range(3)]
    call("get_version", [ctypes.POINTER(ctypes.c_int)] * 3, *(ctypes.byref(n) for n in numbers))
    return ".".join(str(n.value) for n in numbers)


def decryption_func(func: Callable[[Any, Any, Any], int]) -> Any:
    """Adapt ``f(in_array, key_array, out_array_or_None) -> length`` for ``register_decryption_and_key``.

    It is called twice: first without an output array, to say how long the result is; then to fill one of that length.
    """
    length = 0

    def bytes_at(address: Any, size: int) -> Any:
        if not size:
            return np.empty(0, np.uint8)
        return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (size,))

    def run(data: int, size: int, key: Any, key_size: int, out: int) -> int:
        nonlocal length
        try:
            if not out:
                length = int(func(bytes_at(data, size), bytes_at(key, key_size), None))
                return max(length, 0)
            return max(int(func(bytes_at(data, size), bytes_at(key, key_size), bytes_at(out, length))), 0)
        except BaseException as error:  # C code is on the stack; it takes 0 for a failure, and `call` raises
            raised.error = error
            return 0

    return LiteDecryptionFunc(run)


def _array(key: Sequence[int]) -> Any:
    return (ctypes.c_uint8 * len(key))(*key)


class LiteGlobal:
    """Functions of the whole process."""

    _kept: ClassVar[list[Any]] = []  # C may call these functions until the process ends

    @staticmethod
    def register_decryption_and_key(decryption_name: str, decryption_func: Any, key: Sequence[int]) -> None:
        """A method of decryption for ``LiteConfig.bare_model_cryption_name`` and packed models, by its name."""
        LiteGlobal._kept.append(decryption_func)
        call("register_decryption_and_key", _keys, decryption_name.encode(), decryption_func, _array(key), len(key))

    @staticmethod
    def update_decryption_key(decryption_name: str, key: Sequence[int]) -> None:
        """Another key for a registered method; those of this library are AES_default, RC4_default and
        SIMPLE_FAST_RC4_default."""
        call("update_decryption_or_key", _keys, decryption_name.encode(), LiteDecryptionFunc(), _array(key), len(key))

    @staticmethod
    def set_loader_lib_path(path: str | os.PathLike[str]) -> None:
        call("set_loader_lib_path", [ctypes.c_char_p], os.fsencode(path))

    @staticmethod
    def set_persistent_cache(path: str | os.PathLike[str], always_sync: bool = False) -> None:
        call("set_persistent_cache", [ctypes.c_char_p, ctypes.c_int], os.fsencode(path), int(always_sync))

    @staticmethod
    def dump_persistent_cache(path: str | os.PathLike[str]) -> None:
        call("dump_persistent_cache", [ctypes.c_char_p], os.fsencode(path))

    @staticmethod
    def set_tensorrt_cache(path: str | os.PathLike[str]) -> None:
        call("set_tensor_rt_cache", [ctypes.c_char_p], os.fsencode(path))

    @staticmethod
    def dump_tensorrt_cache() -> None:
        call("dump_tensor_rt_cache", [])

    @staticmethod
    def get_device_count(device_type: LiteDeviceType) -> int:
        count = ctypes.c_size_t()
        call("get_device_count", [ctypes.c_int, ctypes.POINTER(ctypes.c_size_t)], int(device_type), ctypes.byref(count))
        return count.value

    @staticmethod
    def try_coalesce_all_free_memory() -> None:
        """Give cached memory back to the system."""
        call("try_coalesce_all_free_memory", [])

    @staticmethod
    def register_memory_pair(
        vir_ptr: Any,
        phy_ptr: Any,
        length: int,
        device: LiteDeviceType,
        backend: LiteBackend = LiteBackend.LITE_DEFAULT,
    ) -> None:
        call("register_memory_pair", _pair, vir_ptr, phy_ptr, length, int(device), int(backend))

    @staticmethod
    def clear_memory_pair(
        vir_ptr: Any, phy_ptr: Any, device: LiteDeviceType, backend: LiteBackend = LiteBackend.LITE_DEFAULT
    ) -> None:
        types = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        call("clear_memory_pair", types, vir_ptr, phy_ptr, int(device), int(backend))

    @staticmethod
    def lookup_physic_ptr(
        vir_ptr: Any, device: LiteDeviceType, backend: LiteBackend = LiteBackend.LITE_DEFAULT
    ) -> ctypes.c_void_p:
        out = ctypes.c_void_p()
        types = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int]
        call("lookup_physic_ptr", types, vir_ptr, ctypes.byref(out), int(device), int(backend))
        return out
