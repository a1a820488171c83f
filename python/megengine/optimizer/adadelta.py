"""Adadelta."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core._core import ops
from .optimizer import Optimizer, _count, _grad_of, check_number

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

    _numbers = ("rho", "eps", "weight_decay")

    def __init__(
        self, params: Any, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0
    ) -> None:
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            check_number("Adadelta", name, value)
        check_number("Adadelta", "rho", rho, 0.0, 1.0)
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay})

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for p in param_group["params"]:
            self._add_state(p, "square_avg", initializer=np.zeros(p.shape, dtype=np.float32))
            self._add_state(p, "acc_delta", initializer=np.zeros(p.shape, dtype=np.float32))
            self._add_state(p, "step", initializer=0.0)

    def _check_numbers(self, numbers: tuple[float, ...]) -> None:
        super()._check_numbers(numbers)
        if numbers[0] > 1.0:
            raise ValueError(f"Adadelta: rho must be from 0 to 1; got {numbers[0]}.")

    def _updates(self, param_group: dict[str, Any]) -> None:
        lr, hyper = self._lr(param_group), self._hyper(param_group)
        for p in param_group["params"]:
            if p.grad is None:
                continue
            state = self._state[p]
            _count(state["step"], _grad_of(p)[1])
            self._fused(p, ops.adadelta_update, (state["square_avg"], state["acc_delta"]), (lr, hyper))
