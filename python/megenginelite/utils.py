"""Collecting single samples into a batch."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import check_misc, get_log_level, set_log_level
from .struct import (
    LiteAlgoSelectStrategy,
    LiteBackend,
    LiteDataType,
    LiteDeviceType,
    LiteIOType,
    LiteLayout,
    LiteLogLevel,
    LiteTensorPhase,
    MisuseError,
    lite_dtype_2_numpy,
)
from .tensor import LiteTensor, LiteTensorConcat

__all__ = [  # with what the original's module of this name has
    "LiteAlgoSelectStrategy",
    "LiteBackend",
    "LiteDataType",
    "LiteDeviceType",
    "LiteIOType",
    "LiteLayout",
    "LiteLogLevel",
    "LiteTensor",
    "LiteTensorConcat",
    "LiteTensorPhase",
    "TensorBatchCollector",
    "check_misc",
    "get_log_level",
    "lite_dtype_2_numpy",
    "set_log_level",
]


class TensorBatchCollector:
    """A tensor whose first dimension is a batch of slots that threads fill and free.

    >>> batch = TensorBatchCollector([4, 2], "int8", LiteDeviceType.LITE_CPU)
    >>> batch.collect(np.array([1, 2], "int8")), batch.collect(np.array([3, 4], "int8"))
    (0, 1)
    >>> batch.free([0])
    >>> batch.collect(np.array([5, 6], "int8"))
    0
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: LiteDataType | npt.DTypeLike = LiteDataType.LITE_INT8,
        device_type: LiteDeviceType = LiteDeviceType.LITE_CUDA,
        device_id: int = 0,
        is_pinned_host: bool = False,
        tensor: LiteTensor | None = None,
    ) -> None:
        if len(shape) < 1 or shape[0] < 1:
            raise MisuseError(f"lite: a batch needs a first dimension of 1 or more; got {list(shape)}.")
        if tensor is None:
            tensor = LiteTensor(LiteLayout(shape, dtype), device_type, device_id, is_pinned_host)
        elif tensor.layout.shapes != list(shape):
            raise MisuseError(f"lite: the tensor is {tensor.layout.shapes}, not {list(shape)}.")
        self._tensor = tensor
        self.shape = list(shape)
        self.dtype = LiteDataType(tensor.layout.data_type)
        self.dev_type = tensor.device_type
        self.dev_id = tensor.device_id
        self.is_pinned_host = tensor.is_pinned_host
        self._lock = threading.Lock()
        self._free_list = list(range(shape[0]))

    def _take(self) -> int:
        with self._lock:
            return self._free_list.pop(0) if self._free_list else -1

    def collect_id(self, array: npt.NDArray[Any] | LiteTensor, batch_id: int) -> int:
        """Put one sample into slot ``batch_id``, in the place of one that is there."""
        if not 0 <= batch_id < self.shape[0]:
            raise MisuseError(f"lite: slot {batch_id} of a batch of {self.shape[0]}.")
        with self._lock:
            if new := batch_id in self._free_list:
                self._free_list.remove(batch_id)
        self._store(array, batch_id, new)
        return batch_id

    def collect(self, array: npt.NDArray[Any] | LiteTensor) -> int:
        """Put one sample into the first free slot and return its index; -1 when all are taken."""
        index = self._take()
        if index >= 0:
            self._store(array, index)
        return index

    def collect_by_ctypes(self, data: Any, length: int) -> int:
        """The same from a ctypes object of ``length`` bytes."""
        index = self._take()
        if index >= 0:
            slot = self.get_tensor_at(index)
            if length != slot.nbytes:
                self.free([index])
                raise MisuseError(f"lite: a sample takes {slot.nbytes} bytes; got {length}.")
            ctypes.memmove(slot.get_ctypes_memory(), data, length)
        return index

    def _store(self, array: npt.NDArray[Any] | LiteTensor, index: int, new: bool = True) -> None:
        slot = self.get_tensor_at(index)
        try:
            source = array.to_numpy() if isinstance(array, LiteTensor) else array
            if not isinstance(source, (np.ndarray, np.generic)):
                raise MisuseError(f"lite: a sample is an array or a LiteTensor; got a {type(array).__name__}.")
            if source.nbytes != slot.nbytes or source.dtype != np.dtype(slot.layout.dtype):
                raise MisuseError(
                    f"lite: a sample is {slot.layout._text()}; got {source.dtype.name}{list(source.shape)}."
                )
            slot.set_data_by_copy(source.reshape(slot.layout.shapes), layout=None)
        except BaseException:
            if new:
                self.free([index])
            raise

    def free(self, indexes: Sequence[int]) -> None:
        """Make slots usable again."""
        with self._lock:
            for index in indexes:
                if not 0 <= index < self.shape[0] or index in self._free_list:
                    raise MisuseError(f"lite: slot {index} is not in use.")
            self._free_list = sorted([*self._free_list, *indexes])

    def get_tensor_at(self, idx: int) -> LiteTensor:
        """The slot as a tensor of shape [1, ...] that shares memory."""
        return self._tensor.slice([idx], [idx + 1])

    def get(self) -> LiteTensor:
        """The whole batch."""
        return self._tensor

    def to_numpy(self) -> npt.NDArray[Any]:
        return self._tensor.to_numpy()
