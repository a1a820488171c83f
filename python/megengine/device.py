"""Devices: names, counts, memory.

A name is a type and an index, with an optional stream: ``cpu0``, ``gpu1:2``, ``multithread4``. ``x`` as the index means
"the usual one" and ``xpu`` the best type there is, so ``xpux`` runs anywhere.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Any, NamedTuple

from .core import _core
from .core._core import CompNode as CompNode

__all__ = [
    "coalesce_free_memory",
    "get_allocated_memory",
    "get_cuda_compute_capability",
    "get_cuda_device_property",
    "get_cuda_driver_version",
    "get_cuda_version",
    "get_cudnn_version",
    "get_default_device",
    "get_device_count",
    "get_max_allocated_memory",
    "get_max_reserved_memory",
    "get_mem_status_bytes",
    "get_num_threads",
    "get_reserved_memory",
    "get_tensorrt_version",
    "is_atlas_available",
    "is_cambricon_available",
    "is_cuda_available",
    "is_rocm_available",
    "reset_max_memory_stats",
    "set_default_device",
    "set_num_threads",
    "set_prealloc_config",
]


class DeviceType(Enum):
    """Kinds of device."""

    UNSPEC = 0
    CUDA = 1
    ROCM = 2
    CPU = 3
    CAMBRICON = 4
    ATLAS = 5
    MULTITHREAD = 6

    def __repr__(self) -> str:
        return str(self)


_TYPES = ("cpu", "gpu", "xpu", "rocm", "cambricon", "atlas")


def _valid_device(name: str) -> bool:
    return isinstance(name, str) and _core.is_valid_device_name(name)


class _StreamCounter:
    """Hands out stream ids; 0 is everyone's default."""

    def __init__(self) -> None:
        self._next = 1

    def get_next(self) -> int:
        """An id not handed out before."""
        self._next += 1
        return self._next - 1


_sh = _StreamCounter()


class _Threads:
    """Whether the user said how many threads there are."""

    chosen = False


_threads = _Threads()


def get_default_device() -> str:
    """The name given to ``set_default_device``, ``"xpux"`` at first.

    >>> mge.get_default_device()
    'xpux'
    """
    return _core.get_default_device()


def set_default_device(device: str = "xpux") -> None:
    """Where tensors are made from now on when no device is named.

    >>> mge.set_default_device("xpux")
    """
    assert _valid_device(device), f"set_default_device: bad device name {device!r}. Examples: cpu0, gpu0, xpux."
    _core.set_default_device(device)


def get_device_count(device_type: str) -> int:
    """How many devices of a type there are.

    >>> mge.get_device_count("cpu") > 0
    True
    """
    assert device_type in _TYPES, f"get_device_count: the type must be one of {', '.join(_TYPES)}; got {device_type!r}."
    return _core.device_count(device_type)


def is_cuda_available() -> bool:
    """Whether a CUDA device is present."""
    return get_device_count("gpu") > 0


def is_rocm_available() -> bool:
    """Whether a ROCm device is present."""
    return get_device_count("rocm") > 0


def is_cambricon_available() -> bool:
    """Whether a Cambricon device is present."""
    return get_device_count("cambricon") > 0


def is_atlas_available() -> bool:
    """Whether an Atlas device is present."""
    return get_device_count("atlas") > 0


def what_is_xpu() -> str:
    """What ``xpu`` stands for here: ``"cpu"``. A GPU is asked for by its name (docs/gpu.md)."""
    return "cpu"


def get_mem_status_bytes(device: Any = None) -> tuple[int, int]:
    """Total and free memory of a device, in bytes.

    >>> total, free = mge.get_mem_status_bytes()
    >>> total >= free >= 0
    True
    """
    stats = _core.memory_stats(device)
    return stats["total"], stats["free"]


def get_allocated_memory(device: Any = None) -> int:
    """Bytes that tensors use now. Call ``megengine._full_sync()`` first for an exact number."""
    return _core.memory_stats(device)["allocated"]


def get_reserved_memory(device: Any = None) -> int:
    """Bytes taken from the system now."""
    return _core.memory_stats(device)["reserved"]


def get_max_allocated_memory(device: Any = None) -> int:
    """The most bytes that tensors used at one time."""
    return _core.memory_stats(device)["max_allocated"]


def get_max_reserved_memory(device: Any = None) -> int:
    """The most bytes taken from the system at one time."""
    return _core.memory_stats(device)["max_reserved"]


def reset_max_memory_stats(device: Any = None) -> None:
    """Set both maxima to what is in use now.

    >>> mge.reset_max_memory_stats()
    >>> mge.get_max_allocated_memory() >= mge.get_allocated_memory()
    True
    """
    _core.reset_peak_memory(device)


def coalesce_free_memory() -> None:
    """Give unused memory back to the system."""
    _core.trim_memory()


def get_num_threads() -> int:
    """How many CPU threads an op may use.

    >>> mge.device.get_num_threads() >= 1
    True
    """
    return _core.get_num_threads()


def set_num_threads(n: int) -> None:
    """Let ops use ``n`` CPU threads, the caller's among them; no result depends on it.

    At the start it is the environment variable ``MGE_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the number of cores
    the process may use: those of its affinity mask, and no more than the CPU quota of its cgroup (a container's).

    >>> before = mge.device.get_num_threads()
    >>> mge.device.set_num_threads(1)
    >>> mge.device.get_num_threads()
    1
    >>> mge.device.set_num_threads(before)
    """
    _core.set_num_threads(n)
    _threads.chosen = True


def divide_threads(n: int, cores: int | None = None) -> None:
    """Take an ``n``-th of the cores, at least one, where ``n`` processes share them.

    Does nothing where the user has chosen: ``set_num_threads``, ``MGE_NUM_THREADS``, ``OMP_NUM_THREADS``.

    Args:
        n: how many processes.
        cores: those that they share; by default as many as this one may use.
    """
    chosen = _threads.chosen or any(os.environ.get(v) for v in ("MGE_NUM_THREADS", "OMP_NUM_THREADS"))
    if not chosen and n > 1:
        now = _core.get_num_threads()
        _core.set_num_threads(max(1, min(now, (cores or now) // n)))


def set_prealloc_config(
    alignment: int = 1,
    min_req: int = 32 * 1024 * 1024,
    max_overhead: int = 0,
    growth_factor: float = 2.0,
    device_type: DeviceType = DeviceType.CUDA,
) -> None:
    """How the pool of a device type grows. Accepted and checked; the pools here size themselves (docs/compat.md)."""
    assert alignment > 0 and min_req > 0 and max_overhead >= 0 and growth_factor >= 1
    assert isinstance(device_type, DeviceType)


class CudaDeviceProperty(NamedTuple):
    """What ``get_cuda_device_property`` tells of a device."""

    name: str
    total_memory: int
    major: int
    minor: int
    multiprocessors: int


def _on_cuda(who: str, device_type: DeviceType) -> None:
    assert device_type == DeviceType.CUDA, f"{who}: there are devices of type CUDA; got {device_type}."
    if not is_cuda_available():
        raise ValueError(f"{who}: there is no gpu device: {_core.why_no_gpu()}.")


def get_cuda_compute_capability(device: int, device_type: DeviceType = DeviceType.CUDA) -> int:
    """10 * major + minor of a CUDA device."""
    _on_cuda("get_cuda_compute_capability", device_type)
    found = _core.cuda_properties(device)
    return int(10 * found["major"] + found["minor"])


def get_cuda_device_property(device: int, device_type: DeviceType = DeviceType.CUDA) -> CudaDeviceProperty:
    """Name, memory and compute capability of a CUDA device."""
    _on_cuda("get_cuda_device_property", device_type)
    return CudaDeviceProperty(**_core.cuda_properties(device))


def get_cuda_version() -> int:
    """The CUDA version built with, 1000 * major + 10 * minor; -1 without CUDA."""
    return -1


def get_cudnn_version() -> int:
    """The cuDNN version built with; -1 without it."""
    return -1


def get_tensorrt_version() -> int:
    """The TensorRT version built with; -1 without it."""
    return -1


def get_cuda_driver_version() -> int:
    """The version of the CUDA driver, 1000 * major + 10 * minor; -1 without one."""
    return _core.cuda_driver_version()


if "MGE_DEFAULT_DEVICE" in os.environ:
    set_default_device(os.environ["MGE_DEFAULT_DEVICE"])
