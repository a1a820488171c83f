"""Names of the original's private module that programs import: devices, their versions, what ops are told."""

from __future__ import annotations

from typing import Any

import numpy as np

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
from . import OperatorNodeConfig, pybfloat16, pyintb1, pyintb2, pyintb4
from ._stand_ins import stand_in

__all__ = [
    "CompNode",
    "DeviceTensorND",
    "DeviceType",
    "OperatorNodeConfig",
    "TensorAttr",
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
    "is_dtype_equal",
    "is_quantize",
    "pybfloat16",
    "pyintb1",
    "pyintb2",
    "pyintb4",
    "set_prealloc_config",
    "what_is_xpu",
]


class TensorAttr:
    """Shape, dtype and device of a tensor, to be filled in."""

    shape: tuple[int, ...] = ()
    dtype: Any = None
    comp_node: CompNode | None = None


def is_dtype_equal(a: Any, b: Any) -> bool:
    """Whether two dtypes are the same, quantised ones with the same scale and zero point."""
    a, b = np.dtype(a), np.dtype(b)
    return bool(a == b and a.metadata == b.metadata)


def __getattr__(name: str) -> Any:
    return stand_in(__name__, name)
