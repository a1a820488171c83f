"""Keeping gradients small."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core._core import ops
from ..functional import clip, norm
from ..jit.conditional import Conditional, at
from ..tensor import Tensor
from .optimizer import check_number

__all__ = ["clip_grad_norm", "clip_grad_value"]


def _grads(tensors: Tensor | Iterable[Tensor]) -> list[Any]:
    if isinstance(tensors, Tensor):
        tensors = [tensors]
    if hasattr(tensors, "parameters"):
        raise TypeError(f"clip_grad: needs tensors; got a {type(tensors).__name__}. Pass net.parameters().")
    return [t.grad for t in tensors if t.grad is not None]


def clip_grad_norm(tensors: Tensor | Iterable[Tensor], max_norm: float, ord: float = 2.0) -> Tensor:
    """Scale all gradients down together so that their norm is at most ``max_norm``.

    Args:
        tensors: whose gradients to scale, in place; those without a gradient are left out.
        max_norm: the largest norm allowed.
        ord: the order of the norm.

    Returns:
        The norm before.

    >>> p = mge.Parameter([0.0, 0.0])
    >>> p.grad = mge.tensor([3.0, 4.0])
    >>> mge.optimizer.clip_grad_norm(p, 1.0).item()
    5.0
    >>> p.grad.numpy().round(3)
    array([0.6, 0.8], dtype=float32)
    """
    check_number("clip_grad_norm", "max_norm", max_norm)
    grads = _grads(tensors)
    if not grads:
        return Tensor(0.0)
    absent = {id(g.absent): g.absent for g in grads if isinstance(g, Conditional)}
    if absent and (len(absent) > 1 or not all(isinstance(g, Conditional) for g in grads)):
        raise NotImplementedError(
            "clip_grad_norm: some of the gradients are None when GradScaler finds an overflow and others not, which "
            "a trace cannot record. Unscale all of them in one call, or clip outside the trace."
        )
    grads = [g.grad if isinstance(g, Conditional) else g for g in grads]
    home = grads[0].device
    norms = [at(norm(g.reshape(-1), ord=ord).reshape(1), home) for g in grads]
    total = norm(ops.concat(*norms, axis=0), ord=ord) if len(norms) > 1 else norms[0].reshape(())
    scale = clip(max_norm / (total + 1e-6), upper=1.0)
    for g in grads:
        g._reset((g * at(scale, g.device)).astype(g.dtype))
    for missing in absent.values():  # without gradients the norm is 0
        total = ops.where(at(missing, home), 0.0, total)
    return total


def clip_grad_value(tensors: Tensor | Iterable[Tensor], lower: float, upper: float) -> None:
    """Keep every element of the gradients between ``lower`` and ``upper``, in place.

    >>> p = mge.Parameter([0.0, 0.0])
    >>> p.grad = mge.tensor([-3.0, 4.0])
    >>> mge.optimizer.clip_grad_value(p, -1.0, 2.0)
    >>> p.grad.tolist()
    [-1.0, 2.0]
    """
    for found in _grads(tensors):
        g = found.grad if isinstance(found, Conditional) else found
        g._reset(clip(g, lower, upper).astype(g.dtype))
