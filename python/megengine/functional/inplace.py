"""Updates of a tensor's own value."""

from __future__ import annotations

from ..tensor import Tensor

__all__ = ["_inplace_add_"]


def _inplace_add_(dest: Tensor, delta: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """``dest`` becomes ``alpha * dest + beta * delta``, and is returned.

    >>> F.inplace._inplace_add_(mge.tensor([1.0]), mge.tensor([2.0]), mge.tensor(2.0), mge.tensor(3.0)).tolist()
    [8.0]
    """
    if dest.shape != delta.shape:
        raise ValueError(f"_inplace_add_: both tensors must have one shape; got {dest.shape} and {delta.shape}.")
    dest._reset(dest * alpha + delta * beta)
    return dest
