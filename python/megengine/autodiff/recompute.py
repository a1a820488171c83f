"""Gradients for less memory: intermediate results are computed again instead of kept (rematerialisation)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..core import _core
from ..core.autodiff._recomputing import Notes, thread
from ..core.tensor.dtype import is_differentible_dtype
from ..jit.tree import flatten, unflatten
from ..random.rng import generator_states
from ..tensor import Tensor

__all__ = ["checkpoint"]


def checkpoint(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the values and gradients of ``fn`` that keeps its arguments, not what it computes on the way.

    When the backward pass arrives, ``fn`` runs again and its gradients are computed then: about a third more work for
    the memory of all intermediate results. The second run draws the same random numbers, casts as the first one did
    under ``amp.autocast``, and leaves running statistics and what observers have seen alone. Gradients reach the tensor
    arguments (also inside tuples, lists and dicts) and every tensor a ``GradManager`` is attached to, so parameters
    need not be arguments. Any other tensor with a gradient must be one; using it from outside is an error.

    Results and gradients are those of ``fn`` to the bit, in a ``trace`` as well, whose program needs less memory.
    Gradients of gradients may be added in another order.

    ``fn`` must give the same results when it is run again, and must not assign to its arguments or to parameters.

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
        if not _core.is_recording():
            return fn(*args, **kwargs)
        return _Segment(fn, args, kwargs).forward()

    return call


class _Segment:
    """One call of a checkpointed function, between its forward and its backward run."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given: list[Tensor] = []
        self.fn = fn
        self.tree = flatten((args, kwargs), given)
        self.args = [Tensor(t) for t in given]  # as they are now; the caller may assign to his
        self.casting = _core.mode_word()
        self.random = [(cell, Tensor(cell)) for cell in generator_states(given)]
        self.shapes: list[tuple[int, ...]] = []
        self.recorded: list[int] = []  # which outputs backward asks for
        self.notes = Notes(thread.notes)

    def forward(self) -> Any:
        args = [t.detach() for t in self.args]
        with _core.Unrecorded() as part:
            tree, outputs = self.run(args)
        self.shapes = [t.shape for t in outputs]
        inputs = {id(t): i for i, t in enumerate(args)}
        own: dict[int, Tensor] = {}
        for i, t in enumerate(outputs):
            if id(t) in inputs and _core.same_value(t, self.args[inputs[id(t)]]):
                own[id(t)] = self.args[inputs[id(t)]]  # an argument given back has the history it came with
            elif _core.is_tracked([t]):
                own[id(t)] = t  # a parameter given back
            elif id(t) not in own:
                own[id(t)] = Tensor(t)  # the function may keep the one it returns
                if is_differentible_dtype(t.dtype):
                    self.recorded.append(i)
        part.record(self.again, self.args, [own[id(outputs[i])] for i in self.recorded])
        return unflatten(tree, [own[id(t)] for t in outputs])

    def run(self, tensors: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
        args, kwargs = unflatten(self.tree, tensors)
        outputs: list[Tensor] = []
        around, thread.notes = thread.notes, self.notes
        try:
            return flatten(self.fn(*args, **kwargs), outputs), outputs
        finally:
            thread.notes = around

    def again(self) -> list[Tensor]:
        """The outputs once more, recorded this time; backward goes on through them."""
        self.notes.next = 0
        with _second_run(self.casting, self.random):
            _, outputs = self.run([Tensor(t) for t in self.args])
        if [t.shape for t in outputs] != self.shapes:
            raise RuntimeError(
                f"checkpoint: the function returned shapes {self.shapes} at first and "
                f"{[t.shape for t in outputs]} when it was run again; it must do the same both times."
            )
        return [outputs[i] for i in self.recorded]


@contextlib.contextmanager
def _second_run(casting: int, random: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Casting and random generators as they were before the first run; what is now comes back at the end."""
    now = [(cell, Tensor(cell)) for cell, _ in random]
    casting_now, recomputing = _core.mode_word(), thread.recomputing
    for cell, state in random:
        cell._reset(state)
    _core.set_mode_word(casting)
    thread.recomputing = True
    try:
        yield
    finally:
        thread.recomputing = recomputing
        _core.set_mode_word(casting_now)
        for cell, state in now:
            cell._reset(state)
