"""Names of the original's private module that programs import: one stream waits for what another has done so far.

>>> from megengine._multistream import record_event, wait_event
>>> x = mge.tensor([1.0], device="cpu0:1") * 2
>>> wait_event("cpu0:0", record_event("cpu0:1"))
"""

from __future__ import annotations

from typing import Any

from .tensor import Tensor

__all__ = ["record_event", "wait_event"]


def record_event(device: Any) -> Tensor:
    """A mark behind all that the stream was given so far."""
    return Tensor(0, dtype="int32", device=device) + 1


def wait_event(device: Any, event: Tensor) -> None:
    """What ``device`` is given from now on comes after the event. The program waits for it here."""
    event.numpy()
