"""Adadelta."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core._core import ops
from .optimizer import Optimizer

__all__ = ["Adadelta"]


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012): steps scaled by the ratio of running step and gradient sizes.

    Args:
        params: what to optimize.
        lr: a factor on the step.
        rho: how much of the running means is kept.
        eps: added to both running means.
        weight_decay: added to the gradient as ``weight_decay * p``.

    >>> from megengine.optimizer import Adadelta
    >>> p = mge.Parameter([1.0])
    >>> p.grad = mge.tensor([2.0])
    >>> bool(Adadelta(p).step() and (p < 1.0).item())
    True
    """

    def __init__(
        self, params: Any, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0
    ) -> None:
        assert lr >= 0.0, f"Adadelta: lr must be at least 0; got {lr}."
        assert 0.0 <= rho <= 1.0, f"Adadelta: rho must be from 0 to 1; got {rho}."
        assert eps >= 0.0, f"Adadelta: eps must be at least 0; got {eps}."
        assert weight_decay >= 0.0, f"Adadelta: weight_decay must be at least 0; got {weight_decay}."
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay})

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for p in param_group["params"]:
            self._add_state(p, "square_avg", initializer=np.zeros(p.shape, dtype=np.float32))
            self._add_state(p, "acc_delta", initializer=np.zeros(p.shape, dtype=np.float32))
            self._add_state(p, "step", initializer=0.0)

    def _updates(self, param_group: dict[str, Any]) -> None:
        lr = self._lr(param_group)
        rho, eps, decay = param_group["rho"], param_group["eps"], param_group["weight_decay"]
        for p in param_group["params"]:
            if p.grad is None:
                continue
            state = self._state[p]
            step = state["step"]
            step += 1.0
            cells = (state["square_avg"], state["acc_delta"])
            self._fused(p, ops.adadelta_update, cells, (lr,), rho=rho, eps=eps, weight_decay=decay)
