"""The gradient sessions of this thread that are open, and the manager whose backward is running.

A collective may have to take part in backward where nothing leads to it: off the root ``reduce_sum`` returns None, and
what is sent away has no result at all. Such a call keeps a tensor without elements here, and backward starts there too.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    from ...tensor import Tensor


class _Thread(threading.local):
    def __init__(self) -> None:
        self.backwarding: Any = None
        self.open: list[tuple[_core.GradSession, list[Tensor]]] = []  # outermost first, with what each keeps


thread = _Thread()


def get_backwarding() -> Any:
    """The GradManager whose ``backward`` is running on this thread, or None."""
    return thread.backwarding


def enter(session: _core.GradSession) -> list[Tensor]:
    """The session records from now on; returned is where tensors that its backward starts at are kept."""
    kept: list[Tensor] = []
    thread.open.append((session, kept))
    return kept


def leave(session: _core.GradSession) -> None:
    """The session has ended."""
    thread.open[:] = [entry for entry in thread.open if entry[0] is not session]


def keep(tensor: Tensor) -> None:
    """Let backward of every open session start at the tensor too."""
    for _, kept in thread.open:
        kept.append(tensor)


def follow(tensor: Tensor) -> None:
    """Let every open session record what is computed from the tensor; nobody asks for its gradient."""
    for session, _ in thread.open:
        session.attach(tensor, _ignore)


def _ignore(_: Any) -> None:
    pass
