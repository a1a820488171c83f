"""Names of the original's private module that programs import: devices, their versions, what ops are told."""

from __future__ import annotations

from ...device import (
    DeviceType,
    get_cuda_driver_version,
    get_cuda_version,
    get_cudnn_version,
    get_tensorrt_version,
    set_prealloc_config,
    what_is_xpu,
)
from ...tensor import DeviceTensorND
from .._core import CompNode
from ..tensor.dtype import bfloat16, get_scale, get_zero_point, intb1, intb2, intb4, is_quantize
from . import OperatorNodeConfig

__all__ = [
    "CompNode",
    "DeviceTensorND",
    "DeviceType",
    "OperatorNodeConfig",
    "bfloat16",
    "get_cuda_driver_version",
    "get_cuda_version",
    "get_cudnn_version",
    "get_scale",
    "get_tensorrt_version",
    "get_zero_point",
    "intb1",
    "intb2",
    "intb4",
    "is_quantize",
    "set_prealloc_config",
    "what_is_xpu",
]
