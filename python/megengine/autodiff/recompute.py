"""Gradients for less memory: intermediate results are computed again instead of kept."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import config
from ..core import _amp, _core
from ..core.autodiff._recording import attached_tensors, enter, leave, thread
from ..core.tensor.dtype import is_differentible_dtype
from ..jit.tracing import _flatten, _unflatten
from ..random.rng import generator_states
from ..tensor import Tensor

__all__ = ["checkpoint"]


def checkpoint(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the values and gradients of ``fn`` that keeps its arguments, not what it computes on the way.

    When the backward pass arrives, ``fn`` runs again and its gradients are computed then: about a third more work for
    the memory of all intermediate results. The second run draws the same random numbers, casts as the first one did
    under ``amp.autocast``, and leaves the running statistics of batch normalisation alone. Gradients reach the tensor
    arguments (also inside tuples, lists and dicts) and every tensor a ``GradManager`` is attached to, so parameters
    need not be arguments. Any other tensor with a gradient must be one; using it from outside is an error.

    Results are those of ``fn`` to the bit. So are gradients, except that of a tensor used more than once inside and
    again after: there the terms are added in another order.

    ``fn`` must give the same results when it is run again, and must not assign to its arguments or to parameters. No
    other thread may record gradients of the same parameters while it runs. In a ``trace`` equal computations are done
    once, so there it saves nothing.

    Args:
        fn: a function or module that returns tensors, or containers of them. Results that are no tensors come from the
            first run.

    >>> from megengine.autodiff import GradManager, checkpoint
    >>> layer = M.Linear(2, 2)
    >>> block = checkpoint(lambda x: F.relu(layer(x)))
    >>> with GradManager().attach(layer.parameters()) as gm:
    ...     gm.backward(block(F.ones((1, 2))).sum())
    >>> layer.weight.grad.shape
    (2, 2)
    """
    if not callable(fn):
        raise TypeError(f"checkpoint: needs a function or a module; got {type(fn).__name__}.")

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors: list[Tensor] = []
        tree = _flatten((args, kwargs), tensors)
        leaves = [t for t in attached_tensors() if _core.is_tracked([t])]
        if not leaves and not _core.is_tracked(tensors):
            return fn(*args, **kwargs)
        return _Segment(fn, tree, tensors, leaves).forward()

    return call


class _Segment:
    """One call of a checkpointed function, between its forward and its backward run."""

    def __init__(self, fn: Callable[..., Any], tree: Any, tensors: list[Tensor], leaves: list[Tensor]) -> None:
        self.fn, self.tree = fn, tree
        self.args = [Tensor(t) for t in tensors]  # as they are now; the caller may assign to his
        self.tracked = [i for i, t in enumerate(self.args) if _core.is_tracked([t])]
        self.leaves = leaves
        self.casting = _casting()
        self.random = [(cell, Tensor(cell)) for cell in generator_states(tensors)]
        self.shapes: list[tuple[int, ...]] = []

    def forward(self) -> Any:
        with _detached(self.leaves):
            tree, outputs = self.run([t.detach() for t in self.args])
            if _core.is_tracked(outputs):
                name = getattr(self.fn, "__name__", type(self.fn).__name__)
                raise RuntimeError(
                    f"checkpoint: {name} uses a tensor that has a gradient but is neither an argument nor attached to "
                    "the GradManager, so its gradient would be lost. Pass it as an argument."
                )
        outputs = [Tensor(t) for t in outputs]  # cells of our own: the function may return one it keeps
        self.shapes = [t.shape for t in outputs]
        inputs = [self.args[i] for i in self.tracked] + self.leaves
        _core.set_custom_grad(self.backward, inputs, [t for t in outputs if is_differentible_dtype(t.dtype)])
        return _unflatten(tree, outputs)

    def run(self, tensors: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
        args, kwargs = _unflatten(self.tree, tensors)
        outputs: list[Tensor] = []
        return _flatten(self.fn(*args, **kwargs), outputs), outputs

    def backward(self, *output_grads: Tensor | None) -> list[Tensor | None]:
        """Runs the function again under a recording of its own and walks back through that."""
        args = [Tensor(t) for t in self.args]
        inputs = [args[i] for i in self.tracked] + self.leaves
        grads: dict[int, Tensor] = {}
        session = _core.GradSession()
        session.start()
        try:
            for i, t in enumerate(inputs):
                session.attach(t, functools.partial(grads.__setitem__, i))
            with _Attached(inputs), _second_run(self.casting, self.random):
                _, outputs = self.run(args)
            if [t.shape for t in outputs] != self.shapes:
                raise RuntimeError(
                    f"checkpoint: the function returned shapes {self.shapes} at first and "
                    f"{[t.shape for t in outputs]} when it was run again; it must do the same both times."
                )
            outputs = [t for t in outputs if is_differentible_dtype(t.dtype)]
            pairs = [(y, dy) for y, dy in zip(outputs, output_grads) if dy is not None]
            session.backward([y for y, _ in pairs], [dy for _, dy in pairs])
        finally:
            session.stop()
        found = [grads.get(i) for i in range(len(inputs))]
        grads.clear()  # the callbacks live on the parameters until they are attached to something else
        return found


class _Attached:
    """Tensors that the recording of a second run wants gradients of; a checkpoint inside it asks for them."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors

    def attached_tensors(self) -> list[Tensor]:
        return self._tensors

    def __enter__(self) -> None:
        enter(self)

    def __exit__(self, *_: object) -> None:
        leave(self)


@contextlib.contextmanager
def _detached(tensors: list[Tensor]) -> Iterator[None]:
    """The tensors without their gradient history. Not seen by a trace: they keep their values."""
    token = _core.pause_trace()
    try:
        whole = [Tensor(t) for t in tensors]
        for t in tensors:
            t._reset(t.detach())
    finally:
        _core.resume_trace(token)
    try:
        yield
    finally:
        token = _core.pause_trace()
        try:
            for t, before in zip(tensors, whole):
                t._reset(before)
        finally:
            _core.resume_trace(token)


@contextlib.contextmanager
def _second_run(casting: tuple[Any, ...], random: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Casting and random generators as they were before the first run; what is now comes back at the end."""
    now = [(cell, Tensor(cell)) for cell, _ in random]
    casting_now, recomputing = _casting(), thread.recomputing
    for cell, state in random:
        cell._reset(state)
    _set_casting(casting)
    thread.recomputing = True
    try:
        yield
    finally:
        thread.recomputing = recomputing
        _set_casting(casting_now)
        for cell, state in now:
            cell._reset(state)


def _casting() -> tuple[Any, ...]:
    return _amp.enabled, _amp.low_prec_dtype, _amp.high_prec_dtype, config._compute_mode


def _set_casting(state: tuple[Any, ...]) -> None:
    enabled, _amp.low_prec_dtype, _amp.high_prec_dtype, config._compute_mode = state
    _amp.set_enabled(enabled)
