"""A value that is set once, perhaps by another thread."""

from __future__ import annotations

import threading
from typing import Any


class Future:
    """A box for one value. With ``ack`` the setter waits until the value is read.

    >>> from megengine.utils.future import Future
    >>> f = Future(ack=False)
    >>> f.set(3)
    >>> f.get()
    3
    """

    def __init__(self, ack: bool = True) -> None:
        self._ready = threading.Event()
        self._taken = threading.Event() if ack else None
        self._value: Any = None

    def set(self, value: Any) -> None:
        """Put the value in; a second time is an error."""
        if self._ready.is_set():
            raise RuntimeError("Future.set: the value is already set.")
        self._value = value
        self._ready.set()
        if self._taken is not None:
            self._taken.wait()

    def get(self) -> Any:
        """Wait for the value and return it."""
        self._ready.wait()
        if self._taken is not None:
            self._taken.set()
        return self._value
