"""Adagrad."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core._core import ops
from .optimizer import Optimizer, _count, _grad_of, check_number

__all__ = ["Adagrad"]


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): steps divided by the root of the sum of squared gradients.

    Args:
        params: what to optimize.
        lr: the learning rate.
        lr_decay: how fast it falls: ``lr / (1 + (t - 1) * lr_decay)``.
        eps: added to the sum of squares.
        weight_decay: added to the gradient as ``weight_decay * p``.

    >>> from megengine.optimizer import Adagrad
    >>> p = mge.Parameter([1.0])
    >>> p.grad = mge.tensor([2.0])
    >>> _ = Adagrad(p, lr=0.5).step()
    >>> p.numpy()
    array([0.5], dtype=float32)
    """

    _numbers = ("lr_decay", "eps", "weight_decay")

    def __init__(
        self, params: Any, lr: float = 1e-2, lr_decay: float = 0.0, eps: float = 1e-10, weight_decay: float = 0.0
    ) -> None:
        for name, value in (("lr", lr), ("lr_decay", lr_decay), ("eps", eps), ("weight_decay", weight_decay)):
            check_number("Adagrad", name, value)
        super().__init__(params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay})

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for p in param_group["params"]:
            self._add_state(p, "square_avg", initializer=np.zeros(p.shape, dtype=np.float32))
            self._add_state(p, "step", initializer=0.0)

    def _updates(self, param_group: dict[str, Any]) -> None:
        lr, hyper = self._lr(param_group), self._hyper(param_group)
        for p in param_group["params"]:
            if p.grad is None:
                continue
            total, step = self._state[p]["square_avg"], self._state[p]["step"]
            _count(step, _grad_of(p)[1])
            self._fused(p, ops.adagrad_update, (total,), (lr, step, hyper))
