"""Whether this thread runs a checkpointed function for the second time, and what the first run read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class Notes:
    """What one call of a checkpointed function read of the state that it also changes, in order.

    The first run writes, into the notes of the calls around it too; each later run reads. So a call inside another one
    that runs again is written anew with what it read at first.
    """

    def __init__(self, around: Notes | None) -> None:
        self.around = around
        self.written: list[object] = []
        self.next: int | None = None  # to be read; None while writing

    def kept(self, value: _T, copy: Callable[[_T], _T]) -> _T:
        if self.next is not None:
            self.next += 1
            return self.written[self.next - 1]  # type: ignore[return-value]
        value = copy(value) if self.around is None else self.around.kept(value, copy)
        self.written.append(value)
        return value


class _Thread(threading.local):
    recomputing = False
    notes: Notes | None = None


thread = _Thread()


def recomputing() -> bool:
    """Whether a checkpointed function runs for the second time, so that what it counts is counted already."""
    return thread.recomputing


def kept(value: _T, copy: Callable[[_T], _T]) -> _T:
    """State as it was when this place of a checkpointed function was passed first; ``copy`` keeps it from changes."""
    return value if thread.notes is None else thread.notes.kept(value, copy)
