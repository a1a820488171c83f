"""Scaling losses so that small gradients survive half precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..autodiff import GradManager
from ..core._core import ops
from ..tensor import Tensor


class GradScaler:
    """Multiplies what is differentiated by a factor, divides gradients by it, and finds the factor by itself.

    After gradients with inf or NaN the factor shrinks and the step is dropped: gradients become None. After
    ``growth_interval`` good steps it grows.

    Args:
        init_scale: the factor at the start.
        growth_factor: what it grows by.
        backoff_factor: what it shrinks by.
        growth_interval: good steps before it grows; 0 keeps the factor and checks nothing.

    >>> from megengine import amp
    >>> from megengine.autodiff import GradManager
    >>> w = mge.Parameter([1.0, 2.0])
    >>> gm, scaler = GradManager().attach(w), amp.GradScaler(init_scale=8.0)
    >>> with gm:
    ...     scaler.backward(gm, (w * 3).sum())
    >>> w.grad.tolist()
    [3.0, 3.0]
    """

    def __init__(
        self,
        init_scale: float = 2.0**4,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        self.scale_factor = float(init_scale)
        self.growth_factor = float(growth_factor)
        self.backoff_factor = float(backoff_factor)
        self.growth_interval = growth_interval
        self._growth_tracker = 0
        self._found_non_finite = False

    def backward(
        self,
        gm: GradManager,
        y: Tensor | list[Tensor] | None = None,
        dy: Tensor | list[Tensor] | None = None,
        *,
        unscale_grad: bool = True,
        update_scale: bool | str = "if_unscale_grad",
    ) -> None:
        """``gm.backward(y, dy)`` with everything scaled.

        Args:
            gm: the manager that recorded.
            y: what to differentiate.
            dy: its gradients; None is ones.
            unscale_grad: divide the gradients of all attached tensors by the factor at once; otherwise call
                ``unscale`` before the step.
            update_scale: find a new factor at once; by default together with ``unscale_grad``.
        """
        ys = [] if y is None else list(y) if isinstance(y, (list, tuple)) else [y]
        if dy is None:
            dys = [ops.fill_like(t, value=self.scale_factor) for t in ys]
        else:
            dys = [d * self.scale_factor for d in (dy if isinstance(dy, (list, tuple)) else [dy])]
        gm.backward(ys, dys)
        if unscale_grad:
            self.unscale(gm.attached_tensors())
        if update_scale is True or (update_scale == "if_unscale_grad" and unscale_grad):
            self.update()

    def unscale(self, grad_tensors: Iterable[Tensor]) -> GradScaler:
        """Divide the gradients of these tensors by the factor; all become None when one holds inf or NaN.

        Args:
            grad_tensors: tensors whose ``grad`` is divided in place; an iterator will do.
        """
        tensors = [t for t in grad_tensors if t.grad is not None]
        grads: list[Tensor] = []
        for t in tensors:
            # Two tensors may share one gradient, which is divided once.
            if t.grad is not None and all(g is not t.grad for g in grads):
                grads.append(t.grad)
        if self.growth_interval != 0 and self._check_gradients(grads, 1.0 / self.scale_factor):
            self._found_non_finite = True
            for t in tensors:
                t.grad = None
        elif self.growth_interval == 0:
            self._scale(grads, 1.0 / self.scale_factor)
        return self

    def _scale(self, grads: list[Tensor], scale: float) -> None:
        for g in grads:
            g._reset((g * scale).astype(g.dtype))

    def _check_gradients(self, grads: list[Tensor], scale: float) -> bool:
        """Multiply the gradients in place; whether one of them holds inf or NaN."""
        self._scale(grads, scale)
        # x * 0 is NaN where x is not finite and 0 elsewhere. All sums are queued before the first is waited for.
        sums = [(g.astype("float32") * 0.0).sum() for g in grads]
        return any(s.item() != 0.0 for s in sums)

    def update(self, new_scale: float | None = None) -> None:
        """Find the next factor, or set it; does nothing with a growth interval of 0.

        Args:
            new_scale: the factor to use from now on.
        """
        if self.growth_interval == 0:
            return
        if new_scale is not None:
            self.scale_factor = float(new_scale)
        elif self._found_non_finite:
            self.scale_factor *= self.backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker >= self.growth_interval:
                self.scale_factor *= self.growth_factor
                self._growth_tracker = 0
        self._found_non_finite = False

    def state_dict(self) -> dict[str, Any]:
        """The factor and how it moves.

        >>> from megengine import amp
        >>> amp.GradScaler().state_dict()["scale_factor"]
        16.0
        """
        names = ("scale_factor", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
        return {n: getattr(self, n) for n in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        for name in self.state_dict():
            setattr(self, name, state[name])
