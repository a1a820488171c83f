"""Whether this thread runs a checkpointed function for the second time."""

from __future__ import annotations

import threading


class _Thread(threading.local):
    recomputing = False


thread = _Thread()


def recomputing() -> bool:
    """Whether a checkpointed function runs for the second time, so that what it counts is counted already."""
    return thread.recomputing
