"""The gradient sessions of this thread that are open, and the manager whose backward is running."""

from __future__ import annotations

import threading
from typing import Any


class _Thread(threading.local):
    backwarding: Any = None


thread = _Thread()


def get_backwarding() -> Any:
    """The GradManager whose ``backward`` is running on this thread, or None."""
    return thread.backwarding
