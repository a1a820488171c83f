"""LAMB."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core._core import ops
from ..tensor import Tensor
from .adam import _check_adam
from .optimizer import Optimizer, _count, _grad_of

__all__ = ["LAMB", "LAMBFp16"]


class LAMB(Optimizer):
    """LAMB (You et al. 2020): Adam whose step has the size of the parameter, layer by layer.

    Args:
        params: what to optimize.
        lr: the learning rate.
        betas: how much of the running means is kept.
        eps: added to the denominator.
        bias_correction: correct the running means for their start at 0.
        weight_decay: added to the step as ``weight_decay * p``.
        always_adapt: scale the step without weight decay too.

    >>> from megengine.optimizer import LAMB
    >>> p = mge.Parameter([1.0])
    >>> p.grad = mge.tensor([3.0])
    >>> _ = LAMB(p, lr=0.5).step()
    >>> p.numpy()
    array([0.5], dtype=float32)
    """

    _numbers = ("beta1", "beta2", "eps", "weight_decay")

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        bias_correction: bool = True,
        weight_decay: float = 0.0,
        always_adapt: bool = False,
    ) -> None:
        _check_adam(type(self).__name__, lr, betas, weight_decay)
        self.bias_correction = bias_correction
        self.always_adapt = always_adapt
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps})

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for p in param_group["params"]:
            self._add_state(p, "exp_avg", initializer=np.zeros(p.shape, dtype=np.float32))
            self._add_state(p, "exp_avg_sq", initializer=np.zeros(p.shape, dtype=np.float32))
            self._add_state(p, "step", initializer=0.0)

    def _master(self, p: Tensor) -> Tensor:
        """The float32 value that the rule works on."""
        return p

    def _store(self, p: Tensor, value: Tensor) -> None:
        p._reset(value.detach().astype(p.dtype))

    def _read_numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        return float(beta1), float(beta2), float(group["eps"]), float(group["weight_decay"])

    def _check_numbers(self, numbers: tuple[float, ...]) -> None:
        _check_adam(type(self).__name__, 0.0, numbers[:2], numbers[3])

    def _adapts(self, group: dict[str, Any]) -> bool:
        return bool(self.always_adapt or group["weight_decay"] > 0)

    def _structure(self, group: dict[str, Any]) -> Any:
        return self._adapts(group), self.bias_correction

    def _updates(self, param_group: dict[str, Any]) -> None:
        lr, hyper = self._lr(param_group), self._hyper(param_group)
        attrs = {"bias_correction": self.bias_correction}
        for p in param_group["params"]:
            if p.grad is None:
                continue
            grad, skip = _grad_of(p)
            w, g, state = self._master(p).astype("float32"), grad.astype("float32"), self._state[p]
            m, v, step = state["exp_avg"], state["exp_avg_sq"], state["step"]
            _count(step, skip)
            direction, new_m, new_v = ops.lamb_direction(w, g, m, v, step, hyper, skip, **attrs)
            new_w = lamb_step(w, direction, lr, self._adapts(param_group))
            if skip is not None:
                new_w = ops.where(skip, w, new_w)
            m._reset(new_m)
            v._reset(new_v)
            self._store(p, new_w)


def lamb_step(w: Tensor, direction: Tensor, lr: Any, adapt: bool) -> Tensor:
    """``w`` after a step in the direction, with the size of ``w`` if it adapts."""
    if adapt:
        size, step_size = ops.sqrt(ops.square(w).sum()), ops.sqrt(ops.square(direction).sum())
        usable = ops.logical_and(size > 0, step_size > 0)
        lr = lr * ops.where(usable, size / ops.where(usable, step_size, 1.0), 1.0)
    return ops.sgd_update(w, direction, lr, weight_decay=0.0)


class LAMBFp16(LAMB):
    """LAMB for float16 parameters, with float32 copies that the rule works on."""

    def _create_state(self, param_group: dict[str, Any]) -> None:
        super()._create_state(param_group)
        for p in param_group["params"]:
            self._add_state(p, "param_fp32", initializer=p.numpy().astype(np.float32))

    def _master(self, p: Tensor) -> Tensor:
        return self._state[p]["param_fp32"]  # type: ignore[index]

    def _store(self, p: Tensor, value: Tensor) -> None:
        self._state[p]["param_fp32"]._reset(value.detach())  # type: ignore[index]
        p._reset(value.detach().astype(p.dtype))
