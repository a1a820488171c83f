"""Inference with models dumped by ``megengine.jit.trace``: ctypes over the C API of liblite.so."""

from .base import check_misc, config_env, get_log_level, set_log_level
from .global_setting import LiteGlobal, decryption_func, get_version
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
from .utils import TensorBatchCollector

version = __version__ = get_version()

__all__ = [
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
    "TensorBatchCollector",
    "check_misc",
    "config_env",
    "decryption_func",
    "get_log_level",
    "get_model_io_info",
    "get_version",
    "lite_dtype_2_numpy",
    "set_log_level",
    "start_finish_callback",
    "version",
    "wrap_async_callback",
]
