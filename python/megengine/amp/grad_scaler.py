"""Scaling losses so that small gradients survive half precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..autodiff import GradManager
from ..core import _core
from ..core._core import ops
from ..jit.conditional import Conditional, at
from ..tensor import Tensor


class GradScaler:
    """Multiplies what is differentiated by a factor, divides gradients by it, and finds the factor by itself.

    After gradients with inf or NaN the factor shrinks and the step is dropped: gradients become None. After
    ``growth_interval`` good steps it grows. The factor and the number of good steps are tensors, and inside a trace so
    is whether a step is dropped: one recording serves good steps and dropped ones.

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

    _trace_volatile = True  # plain attributes: a trace looks at them on every call

    def __init__(
        self,
        init_scale: float = 2.0**4,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if isinstance(init_scale, str):
            raise TypeError(f"GradScaler: init_scale must be a number; got {init_scale!r}. It holds for all devices.")
        # float64 and int32: Python's own arithmetic on these numbers, to the bit.
        self._scale = Tensor(float(init_scale), "float64")
        self._tracker = Tensor(0, "int32")
        self._non_finite = Tensor(False, "bool")
        self.growth_factor = float(growth_factor)
        self.backoff_factor = float(backoff_factor)
        self.growth_interval = growth_interval

    @property
    def scale_factor(self) -> float:
        """The factor now."""
        return float(self._scale.item())

    @scale_factor.setter
    def scale_factor(self, value: float) -> None:
        self._scale._reset(Tensor(float(value), "float64", self._scale.device))

    @property
    def _growth_tracker(self) -> int:
        return int(self._tracker.item())

    @_growth_tracker.setter
    def _growth_tracker(self, value: int) -> None:
        self._tracker._reset(Tensor(int(value), "int32", self._tracker.device))

    @property
    def _found_non_finite(self) -> bool:
        return bool(self._non_finite.item())

    @_found_non_finite.setter
    def _found_non_finite(self, value: bool) -> None:
        self._non_finite._reset(Tensor(bool(value), "bool", self._non_finite.device))

    def _trace_state(self) -> list[Any]:
        """What a recording depends on besides the tensors."""
        return [self.growth_factor, self.backoff_factor, self.growth_interval]

    _trace_watched = (_trace_state, ())  # by attributes that are numbers; python/bindings/watch.cpp

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
            dys = [ops.broadcast_to(self._factor(self._scale, t), shape=t._tuple_shape) for t in ys]
        else:
            dys = [d * self._factor(self._scale, d) for d in (dy if isinstance(dy, (list, tuple)) else [dy])]
        gm.backward(ys, dys)
        if unscale_grad:
            self.unscale(gm.attached_tensors())
        if update_scale is True or (update_scale == "if_unscale_grad" and unscale_grad):
            self.update()

    @staticmethod
    def _factor(scale: Tensor, like: Tensor) -> Tensor:
        return at(scale, like.device).astype(like.dtype)

    def unscale(self, grad_tensors: Iterable[Tensor]) -> GradScaler:
        """Divide the gradients of these tensors by the factor; all become None when one holds inf or NaN.

        Args:
            grad_tensors: tensors whose ``grad`` is divided in place; an iterator will do.
        """
        _core.note_use(self)
        held = [(t, t.grad) for t in grad_tensors if t.grad is not None]
        maybe: dict[int, Conditional] = {}  # by id of the gradient; two tensors may share one, which is divided once
        for _, g in held:
            found = g if isinstance(g, Conditional) else Conditional(g, _NEVER)
            maybe.setdefault(id(found.grad), found)
        inverse = 1.0 / self._scale
        for c in maybe.values():
            c.grad._reset((c.grad * self._factor(inverse, c.grad)).astype(c.grad.dtype))
        if self.growth_interval == 0 or not held:
            return self
        bad = self._holds_non_finite(list(maybe.values()))
        self._non_finite._reset(ops.logical_or(self._non_finite, bad))
        # To an outer manager a parameter is another tensor after a step and the same after a dropped one: no select.
        if _core.is_tracing() and not _core.is_recording():
            for t, g in held:
                c = g if isinstance(g, Conditional) else maybe[id(g)]
                absent = bad if c.absent is _NEVER else ops.logical_or(bad, c.absent)
                Conditional(c.grad, absent).give_to(t)
        elif bad.item():
            for t, _ in held:
                t.grad = None
                t._grad_dropped = True  # a step without gradients is meant then
        return self

    def _holds_non_finite(self, grads: list[Conditional]) -> Tensor:
        """Whether one of the gradients holds inf or NaN, as a tensor."""
        home = self._scale.device
        sums = []
        for c in grads:
            # x * 0 is NaN where x is not finite and 0 elsewhere.
            total = (c.grad.astype("float32") * 0.0).sum()
            if c.absent is not _NEVER:
                total = ops.where(at(c.absent, total.device), 0.0, total)
            sums.append(at(total, home))
        all_sums = ops.concat(*(s.reshape(1) for s in sums), axis=0).sum() if len(sums) > 1 else sums[0]
        return all_sums != 0.0

    def update(self, new_scale: float | None = None) -> None:
        """Find the next factor, or set it; does nothing with a growth interval of 0.

        Args:
            new_scale: the factor to use from now on.
        """
        _core.note_use(self)
        if self.growth_interval == 0:
            return
        if new_scale is not None:
            self.scale_factor = new_scale
        else:
            bad, scale, good = self._non_finite, self._scale, self._tracker + 1
            full = good >= self.growth_interval
            grown = ops.where(full, scale * self.growth_factor, scale)
            scale._reset(ops.where(bad, scale * self.backoff_factor, grown))
            self._tracker._reset(ops.where(ops.logical_or(bad, full), ops.fill_like(good, value=0), good))
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


_NEVER: Any = object()  # in the place of ``absent``: an ordinary gradient
