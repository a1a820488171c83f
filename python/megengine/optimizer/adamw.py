"""AdamW."""

from __future__ import annotations

from typing import Any

from .adam import Adam

__all__ = ["AdamW"]


class AdamW(Adam):
    """Adam with weight decay applied to the parameter itself (Loshchilov and Hutter 2019).

    >>> from megengine.optimizer import AdamW
    >>> p = mge.Parameter([1.0])
    >>> p.grad = mge.tensor([3.0])
    >>> _ = AdamW(p, lr=0.5, weight_decay=0.0).step()
    >>> p.numpy()
    array([0.5], dtype=float32)
    """

    _decoupled = True

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
