"""Deep object graphs need a deep stack."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_depth = 0
_before = 0


@contextmanager
def max_recursion_limit() -> Iterator[None]:
    """Raise Python's recursion limit for a block; blocks may nest and run in several threads.

    >>> from megengine.utils.max_recursion_limit import max_recursion_limit
    >>> import sys
    >>> before = sys.getrecursionlimit()
    >>> with max_recursion_limit():
    ...     sys.getrecursionlimit() > before
    True
    >>> sys.getrecursionlimit() == before
    True
    """
    global _depth, _before
    with _lock:
        if _depth == 0:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, 20000))
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                sys.setrecursionlimit(_before)
