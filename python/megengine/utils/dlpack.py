"""Exchange of tensors with other frameworks without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import _core

if TYPE_CHECKING:
    from ..tensor import Tensor


def to_dlpack(tensor: Tensor, stream: int | None = None) -> Any:
    """A DLPack capsule of ``tensor``."""
    assert stream is None or stream >= 0, f"to_dlpack: the stream must be at least 0; got {stream}."
    make = getattr(_core, "to_dlpack", None)
    if make is None:
        raise NotImplementedError("to_dlpack: arrives with the DLPack exchange; use Tensor.numpy() until then.")
    return make(tensor)


def from_dlpack(ext_tensor: Any, stream: int | None = None) -> Tensor:
    """A tensor of a DLPack capsule, or of an object with ``__dlpack__``."""
    assert stream is None or stream >= 0, f"from_dlpack: the stream must be at least 0; got {stream}."
    make = getattr(_core, "from_dlpack", None)
    if make is None:
        raise NotImplementedError(
            "from_dlpack: arrives with the DLPack exchange; use tensor(np.asarray(x)) until then."
        )
    capsule = ext_tensor.__dlpack__() if hasattr(ext_tensor, "__dlpack__") else ext_tensor
    return make(capsule)  # type: ignore[no-any-return]
