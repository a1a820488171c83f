"""Adam."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core._core import ops
from ..tensor import Tensor
from .optimizer import Optimizer, _count, _grad_of, check_number

__all__ = ["Adam"]


class Adam(Optimizer):
    r"""Adam (Kingma and Ba 2015): steps scaled by running means of the gradient and of its square.

    Args:
        params: what to optimize.
        lr: the learning rate.
        betas: how much of the running means is kept.
        eps: added to the denominator.
        weight_decay: added to the gradient as ``weight_decay * p``.

    >>> from megengine.optimizer import Adam
    >>> p = mge.Parameter([1.0])
    >>> p.grad = mge.tensor([3.0])
    >>> _ = Adam(p, lr=0.5).step()
    >>> p.numpy()
    array([0.5], dtype=float32)
    """

    _decoupled = False
    _numbers = ("beta1", "beta2", "eps", "weight_decay")

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        _check_adam(type(self).__name__, lr, betas, weight_decay)
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps})

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for p in param_group["params"]:
            self._add_state(p, "exp_avg")
            self._add_state(p, "exp_avg_sq")
            self._add_state(p, "step", initializer=0.0)

    def _read_numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        return float(beta1), float(beta2), float(group["eps"]), float(group["weight_decay"])

    def _check_numbers(self, numbers: tuple[float, ...]) -> None:
        _check_adam(type(self).__name__, 0.0, numbers[:2], numbers[3])

    def _updates(self, param_group: dict[str, Any]) -> None:
        lr, hyper = self._lr_cells[id(param_group)], self._hyper_cells[id(param_group)]
        update, states, decoupled = ops.adam_update.update, self._state, self._decoupled
        for p in param_group["params"]:
            g = p.grad
            if g is None:
                continue
            state = states[p]
            m, v, step = state["exp_avg"], state["exp_avg_sq"], state["step"]
            if type(g) is Tensor and not decoupled:  # the rule: no keyword to parse
                step += 1.0
                update((p, m, v), p, g, m, v, lr, step, hyper)
            else:
                g, skip = _grad_of(p)
                _count(step, skip)
                update((p, m, v), p, g, m, v, lr, step, hyper, skip, decoupled=decoupled)


def _check_adam(who: str, lr: Any, betas: Sequence[float], weight_decay: float) -> None:
    check_number(who, "lr", lr)
    check_number(who, "weight_decay", weight_decay, -math.inf)
    if weight_decay < 0.0:
        raise ValueError(f"{who}: invalid weight_decay value {weight_decay}; it must be at least 0.")
    if not isinstance(betas, Sequence) or len(betas) != 2:
        raise ValueError(f"{who}: betas must be two numbers below 1; got {betas!r}.")
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(
                f"{who}: invalid beta parameter at index {i}: {betas[i]}; betas must be 0 or more, below 1."
            )
