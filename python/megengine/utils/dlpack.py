"""Exchange of tensors with other frameworks without a copy.

>>> from megengine.utils.dlpack import from_dlpack
>>> a = np.arange(3, dtype="float32")
>>> x = from_dlpack(a)
>>> a[0] = 7
>>> x.tolist()
[7.0, 1.0, 2.0]

The memory is shared, so whoever writes into it changes what the other side sees. Tensors here never write into shared
memory: an in-place operator gives the tensor memory of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import _core

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]

_CUDA = 2  # DLPack's number of CUDA devices


def to_dlpack(tensor: Tensor, stream: int | None = None) -> Any:
    """A DLPack capsule of ``tensor``; the tensor's memory lives as long as the capsule's user needs it."""
    assert stream is None or stream >= 0, f"to_dlpack: the stream must be at least 0; got {stream}."
    return _core.to_dlpack(tensor) if stream is None else _core.to_dlpack(tensor, stream)


def from_dlpack(ext_tensor: Any, stream: int | None = None) -> Tensor:
    """A tensor of a DLPack capsule, or of an object with ``__dlpack__`` (PyTorch, NumPy, JAX).

    A tensor on a CUDA device stays there, and its values are waited for on the device. float64 and int64 become float32
    and int32, which takes a copy.
    """
    assert stream is None or stream >= 0, f"from_dlpack: the stream must be at least 0; got {stream}."
    if not hasattr(ext_tensor, "__dlpack__"):
        return _core.from_dlpack(ext_tensor)
    kind, index = ext_tensor.__dlpack_device__() if hasattr(ext_tensor, "__dlpack_device__") else (1, 0)
    if int(kind) == _CUDA:  # the other side lets our stream wait for its own
        return _core.from_dlpack(ext_tensor.__dlpack__(stream=_core.cuda_stream(f"gpu{index}")))
    return _core.from_dlpack(ext_tensor.__dlpack__())
