"""What a loader is doing at this moment, kept where another process can read it after a crash."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from typing import Any

# Values of the shared cell: k >= 0 means "reading sample k of the batch", and the others:
IDLE, TRANSFORM, COLLATE = -1, -2, -3
_TRANSFORM_SAMPLE = -1000  # _TRANSFORM_SAMPLE - k: transforming sample k


class Board:
    """One number per worker in memory shared by fork. A killed worker leaves its last one behind."""

    def __init__(self, workers: int) -> None:
        self._cells = memoryview(mmap.mmap(-1, 8 * workers)).cast("q")
        for i in range(workers):
            self._cells[i] = IDLE

    def write(self, worker: int, value: int) -> None:
        self._cells[worker] = value

    def read(self, worker: int) -> int:
        return self._cells[worker]


class _Here(threading.local):
    board: Board | None = None
    worker: int = 0
    value: int = IDLE

    def note(self, value: int) -> None:
        self.value = value
        if self.board is not None:
            self.board.write(self.worker, value)

    def reading(self, position: int) -> None:
        self.note(position)

    def transforming(self, position: int) -> None:
        """A transform that goes sample by sample says which one it is at."""
        if self.value <= TRANSFORM and self.value != COLLATE:  # else the call is not from a loader
            self.note(_TRANSFORM_SAMPLE - position)


here = _Here()


def describe(value: int, batch: int, samples: Sequence[Any]) -> str:
    """``value`` in words: which sample of which batch."""
    shown = ", ".join(map(str, samples[:8])) + (", …" if len(samples) > 8 else "")
    where = f"batch {batch} (samples [{shown}])"

    def name(k: int) -> str:
        return f"sample {samples[k]} of {where}" if k < len(samples) else where

    if value >= 0:
        return f"reading {name(value)}"
    if value <= _TRANSFORM_SAMPLE:
        return f"transforming {name(_TRANSFORM_SAMPLE - value)}"
    return {TRANSFORM: f"transforming {where}", COLLATE: f"collating {where}"}.get(value, f"at {where}")
