"""Inference with models dumped by ``megengine.jit.trace``: ctypes over the C API of liblite.so."""

import ctypes
import os

import numpy as np

from .base import check_misc, config_env, get_log_level, set_log_level
from .global_setting import LiteDecryptionFunc, LiteGlobal, decryption_func, get_version
from .network import (
    LiteAsyncCallback,
    LiteFinishCallback,
    LiteNetwork,
    LiteStartCallback,
    get_model_io_info,
    start_finish_callback,
    wrap_async_callback,
)
from .struct import (
    MAX_DIM,
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
    MisuseError,
    ctype_to_lite_dtypes,
    lite_dtype_2_numpy,
)
from .tensor import LiteTensor, LiteTensorConcat
from .utils import TensorBatchCollector

version = __version__ = get_version()

__all__ = [
    "MAX_DIM",
    "LiteAlgoSelectStrategy",
    "LiteAsyncCallback",
    "LiteBackend",
    "LiteConfig",
    "LiteDataType",
    "LiteDecryptionFunc",
    "LiteDeviceType",
    "LiteExtraConfig",
    "LiteFinishCallback",
    "LiteGlobal",
    "LiteIO",
    "LiteIOType",
    "LiteLayout",
    "LiteLogLevel",
    "LiteNetwork",
    "LiteNetworkIO",
    "LiteOptions",
    "LiteStartCallback",
    "LiteTensor",
    "LiteTensorConcat",
    "LiteTensorPhase",
    "MisuseError",
    "TensorBatchCollector",
    "check_misc",
    "config_env",
    "ctype_to_lite_dtypes",
    "ctypes",
    "decryption_func",
    "get_log_level",
    "get_model_io_info",
    "get_version",
    "lite_dtype_2_numpy",
    "np",
    "os",
    "set_log_level",
    "start_finish_callback",
    "version",
    "wrap_async_callback",
]

# Programs that begin with `from megenginelite import *` use these without an import of their own.
_from_ctypes = {name: value for name, value in vars(ctypes).items() if not name.startswith("_")}
globals().update(_from_ctypes)
__all__ += list(_from_ctypes)
