"""What this thread records gradients for; ``checkpoint`` asks it."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...tensor import Tensor


class _Thread(threading.local):
    def __init__(self) -> None:
        self.scopes: dict[int, weakref.ref[Any]] = {}  # by id: whatever has attached_tensors()
        self.recomputing = False


thread = _Thread()


def enter(scope: Any) -> None:
    """``scope`` begins to record; it is held weakly."""
    thread.scopes[id(scope)] = weakref.ref(scope)


def leave(scope: Any) -> None:
    """``scope`` records no more."""
    thread.scopes.pop(id(scope), None)


def attached_tensors() -> list[Tensor]:
    """The tensors whose gradients the recordings of this thread want, each once."""
    found: dict[int, Tensor] = {}
    for ref in list(thread.scopes.values()):
        scope = ref()
        if scope is not None:
            found.update((id(t), t) for t in scope.attached_tensors())
    return list(found.values())


def recomputing() -> bool:
    """Whether a checkpointed function runs for the second time, so that what it counts is counted already."""
    return thread.recomputing
