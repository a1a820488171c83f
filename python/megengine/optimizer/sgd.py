"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..core import _core
from ..core._core import ops
from ..core.tensor.utils import ArgumentError
from ..tensor import Parameter, Tensor
from .optimizer import Optimizer, _grad_of, check_number

__all__ = ["SGD"]


class SGD(Optimizer):
    r"""Stochastic gradient descent, with momentum if asked for.

    ``g += weight_decay * p; v = momentum * v + g; p -= lr * (g + momentum * v if nesterov else v)``

    Args:
        params: what to optimize.
        lr: the learning rate.
        momentum: how much of the last step is kept.
        nesterov: look ahead along the momentum; needs ``momentum > 0``.
        weight_decay: strength of the pull towards 0.

    >>> from megengine.optimizer import SGD
    >>> p = mge.Parameter([1.0])
    >>> opt = SGD(p, lr=0.5, momentum=0.9)
    >>> p.grad = mge.tensor([1.0])
    >>> _ = opt.step().step()
    >>> p.numpy()
    array([-0.45], dtype=float32)
    """

    _numbers = ("momentum", "weight_decay")

    def __init__(
        self, params: Any, lr: float, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            check_number("SGD", name, value)
        if nesterov and not momentum > 0.0:
            raise ArgumentError(f"SGD: nesterov needs momentum > 0; got momentum={momentum}.")
        self.nesterov = nesterov
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def _create_state(self, param_group: dict[str, Any]) -> None:
        if param_group["momentum"] != 0.0:
            for p in param_group["params"]:
                self._add_state(p, "momentum_buffer")

    def _late_buffer(self, p: Parameter) -> Tensor:
        token = _core.pause_trace()  # state, not a constant of a recording
        try:
            self._add_state(p, "momentum_buffer")
        finally:
            _core.resume_trace(token)
        return self._state[p]["momentum_buffer"]

    def _read_numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        momentum, decay = float(group["momentum"]), float(group["weight_decay"])
        return (momentum, decay) if momentum else (decay,)

    def _structure(self, group: dict[str, Any]) -> Any:
        return group["momentum"] != 0.0, self.nesterov

    def _updates(self, param_group: dict[str, Any]) -> None:
        lr, hyper = self._lr_cells[id(param_group)], self._hyper_cells[id(param_group)]
        if param_group["momentum"]:
            states = self._state
            update = ops.sgd_momentum_update.update
            nesterov = self.nesterov
            for p in param_group["params"]:
                g = p.grad
                if g is not None:
                    try:
                        m = states[p]["momentum_buffer"]
                    except KeyError:  # there was no momentum when the group was added
                        m = self._late_buffer(p)
                    if type(g) is Tensor and not nesterov:  # the rule: no keyword to parse
                        update((p, m), p, g, lr, m, hyper)
                    else:
                        g, skip = _grad_of(p)
                        update((p, m), p, g, lr, m, hyper, skip, nesterov=nesterov)
            return
        plain = ops.sgd_update.update
        for p in param_group["params"]:
            g = p.grad
            if g is not None:
                if type(g) is Tensor:
                    plain((p,), p, g, lr, hyper)
                else:
                    g, skip = _grad_of(p)
                    plain((p,), p, g, lr, hyper, skip)
