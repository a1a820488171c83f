"""partial_trace: a part of a training step as two compiled programs, inside a GradManager of the caller.

The function and its backward pass are recorded together, with the gradients of its results as arguments that come late
(``src/eager/trace_halves.cpp``). A call runs what does not need them and gives the caller's tape one node, whose
gradient runs the rest.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from ..core import _core
from ..core.autodiff import sessions
from ..core.autodiff.grad import Grad
from ..core.tensor.dtype import is_differentible_dtype
from ..tensor import Tensor
from .tracing import OUTER_GRADIENTS, trace
from .tree import flatten, unflatten

__all__ = ["partial_trace"]


def partial_trace(
    func: Callable[..., Any] | None = None, *, backend: str = "default", without_host: bool = True, **trace_options: Any
) -> Any:
    """Records a function that is called between the start of a ``GradManager`` and its ``backward``.

    The first call with arguments of a kind runs Python; later ones run compiled programs, forward and backward. Python
    goes on running where that cannot be done: in nested managers (gradients of gradients), with
    ``exclude_from_trace``, and for the reasons ``trace(without_host=True)`` tells.

    Args:
        backend: ``"default"``; there is no other.
        without_host: False lets Python run on each call, which is checked.
        trace_options: as for ``trace``. ``trace_gmcallback`` changes nothing: callbacks of ``attach`` are called by the
            caller's manager when a gradient is complete.

    >>> from megengine.jit import partial_trace
    >>> @partial_trace
    ... def square(x):
    ...     return x * x
    >>> x = mge.Parameter([3.0])
    >>> for _ in range(3):
    ...     with mge.autodiff.GradManager().attach([x]) as gm:
    ...         gm.backward(square(x))
    >>> x.grad.item()
    18.0
    """
    if backend != "default":
        raise NotImplementedError(f"partial_trace: there is no backend {backend!r}; leave it out for the default one.")
    trace_options.pop("trace_gmcallback", None)
    if func is None:
        return functools.partial(partial_trace, backend=backend, without_host=without_host, **trace_options)
    return _PartialTrace(func, without_host=without_host, **trace_options)


def _copied(tensors: list[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    """With a copy for each that is among the others or occurs a second time: results are told apart by identity."""
    seen = {id(t) for t in others}
    out = []
    for t in tensors:
        out.append(_core.ops.copy(t) if id(t) in seen else t)
        seen.add(id(t))
    return out


class _Like:
    """What a result looked like, to make gradients for it."""

    def __init__(self, t: Tensor) -> None:
        self.shape, self.dtype, self.device = t._tuple_shape, t.dtype, t.device
        self.differentiable = is_differentible_dtype(t.dtype)

    def zeros(self) -> Tensor:
        return Tensor(np.zeros(self.shape, self.dtype), device=self.device)


class _Plan:
    """What a recording of both passes is made for, and what it found out."""

    def __init__(self, tensors: list[Tensor], captured: list[Tensor], outs: list[_Like]) -> None:
        args = {id(t) for t in tensors}
        self.captured = [t for t in captured if id(t) not in args]
        self.tracked = [_core.is_tracked([t]) for t in (*tensors, *self.captured)]
        self.n_outs = len(outs)
        self.differentiable = [i for i, like in enumerate(outs) if like.differentiable]
        self.late = [outs[i].zeros() for i in self.differentiable]
        self.tree: Any = None
        self.reached: list[int] = []  # of wrt: those that the results depend on

    def wrt(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors of a call that the caller's manager follows."""
        return [t for t, yes in zip((*tensors, *self.captured), self.tracked) if yes]

    def fits(self, tensors: list[Tensor]) -> bool:
        """Whether it follows the same ones in a call with these arguments."""
        return all(_core.is_tracked([t]) == yes for t, yes in zip((*tensors, *self.captured), self.tracked))

    def _trace_state(self) -> list[Any]:
        return []


class _Both(trace):
    """Function and backward pass, recorded in one call that computes nothing."""

    plan: _Plan
    tensors: list[Tensor]

    def __init__(self, function: Callable[..., Any], of: trace) -> None:
        def both(*args: Any, **kwargs: Any) -> list[Tensor]:
            plan, tensors = self.plan, self.tensors
            found: list[Tensor] = []
            grads: dict[int, Tensor] = {}
            with Grad() as grad:
                for i, t in enumerate(plan.wrt(tensors)):
                    grad.wrt(t, callback=functools.partial(grads.__setitem__, i))
                plan.tree = flatten(function(*args, **kwargs), found)
                outs = _copied(found, [*tensors, *plan.captured])
                grad([outs[i] for i in plan.differentiable], plan.late)
            plan.reached = sorted(grads)
            return [*outs, *_copied([grads[i] for i in plan.reached], [*outs, *plan.late, *tensors, *plan.captured])]

        super().__init__(both, without_host=True, symbolic_shape=of.symbolic_shape, opt_level=of._opt_level)
        self._graph_opt = of._graph_opt
        self.__name__ = of.__name__

    def _trace_state(self) -> list[Any]:
        return []

    def record(self, plan: _Plan, tensors: list[Tensor], args: Any, kwargs: Any) -> bool:
        """Whether there is a recording for calls like this now."""
        self.plan, self.tensors, self._late = plan, tensors, plan.late
        key, tensors, held, strict, any_size = self._call_key(args, kwargs)
        recording = _core.Recording(
            self._opt_level, False, strict, any_size, self._graph_opt, record_only=True, late_args=len(plan.late)
        )
        try:
            self._record(key, recording, held, args, kwargs, tensors, strict)
        finally:
            self._late, self.tensors = (), []
        assert self._last is not None
        self._last.result_tree = plan
        return not self._last.host_only

    def _tell(self, reason: str) -> None:
        """Who called has host mode to fall back to."""


class _Call:
    """One call between its passes."""

    def __init__(self, recording: _core.Recording, plan: _Plan, tensors: list[Tensor]) -> None:
        self.plan = plan
        self.half, results = recording.replay_forward(tensors)
        self.outs = cast("list[Tensor]", results[: plan.n_outs])
        self.like = [_Like(t) for t in self.outs]

    def backward(self, *dys: Tensor | None) -> Any:
        """One gradient for each tensor that is followed; the caller's tape calls it."""
        late = [dys[i] if dys[i] is not None else self.like[i].zeros() for i in self.plan.differentiable]
        results = self.half.replay_backward(cast("list[Tensor]", late))[self.plan.n_outs :]
        grads: list[Tensor | None] = [None] * sum(self.plan.tracked)
        for i, g in zip(self.plan.reached, results):
            grads[i] = g
        return tuple(grads)


class _PartialTrace(trace):
    def __reduce__(self) -> Any:
        make, (cls, state) = super().__reduce__()
        return make, (cls, {name: v for name, v in state.items() if name not in ("_both", "_calls")})

    @functools.cached_property
    def _both(self) -> _Both:
        return _Both(self.__wrapped__, self)

    @functools.cached_property
    def _calls(self) -> dict[Any, int]:
        """Calls that there was no recording for, by the kinds of their tensors."""
        return {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # One manager: gradients of gradients need the ops themselves.
        if not self.without_host or len(sessions.thread.open) != 1 or _core.is_tracing() or not _core.is_recording():
            return super().__call__(*args, **kwargs)
        session = sessions.thread.open[0][0]
        found = self._find_both(session, args, kwargs)
        if found is None:
            tensors = self._call_key(args, kwargs)[1]
            key = tuple((str(t.dtype), t.ndim, _core.is_tracked([t])) for t in tensors)
            if len(self._calls) > _MAX_KEYS:
                self._calls.clear()
            tries = self._calls[key] = self._calls.get(key, 0) + 1
            if tries == 1:  # what a first call sets up is there the next time
                return self.__wrapped__(*args, **kwargs)
            if tries <= _MAX_TRIES and self._record_both(session, args, kwargs):
                self._calls[key] = 1
                found = self._find_both(session, args, kwargs)
        if found is None:
            return super().__call__(*args, **kwargs)
        recording, plan, tensors = found
        followed = [Tensor(t) for t in plan.wrt(tensors)]  # as they are now: the call may assign to them
        with _suppressed(session):
            call = _Call(recording, plan, tensors)
        outs, call.outs = call.outs, []
        _core.set_custom_grad(call.backward, followed, outs)
        return unflatten(plan.tree, outs)

    def _find_both(
        self, session: _core.GradSession, args: Any, kwargs: Any
    ) -> tuple[_core.Recording, _Plan, list[Tensor]] | None:
        with _suppressed(session):
            found = self._both._find(args, kwargs)
        if found is None or not found[0].result_tree.fits(found[1]):
            return None
        return found[0].recording, found[0].result_tree, found[1]

    def _record_both(self, session: _core.GradSession, args: Any, kwargs: Any) -> bool:
        _, tensors, _, _, any_size = self._call_key(args, kwargs)
        dry = _core.Recording(self._opt_level, False, False, any_size, self._graph_opt, record_only=True)
        outs: list[Tensor] = []
        with _suppressed(session):
            dry.record_begin(tensors)
            try:
                flatten(self.__wrapped__(*args, **kwargs), outs)
                dry.record_end(outs)
            except Exception:  # of the function's own, or because it reads values: the call that follows tells
                dry.record_abort()
                return False
        plan = _Plan(tensors, dry.captured(), [_Like(t) for t in outs])
        if not any(plan.tracked) or not plan.late or dry.boundaries > 0:
            return False
        with _suppressed(session):
            made: bool = self._both.record(plan, tensors, args, kwargs)
            return made

    def _tell(self, reason: str) -> None:
        """An open GradManager is the ordinary case here, so it is nothing to warn of."""
        if reason is not OUTER_GRADIENTS:
            super()._tell(reason)


_MAX_TRIES, _MAX_KEYS = 4, 1000


@contextlib.contextmanager
def _suppressed(session: _core.GradSession) -> Iterator[None]:
    session.suppress()
    try:
        yield
    finally:
        session.resume()
