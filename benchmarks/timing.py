"""How every benchmark here is timed: warm up, then the median of many short samples; written as JSON for run.py."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

from peers import measured


def sample(fn: Callable[[], object], seconds: float = 1.0, inner: int = 1) -> float:
    """Median seconds of one call of ``fn``; each sample is ``inner`` calls in a row."""
    deadline = time.perf_counter() + seconds * 0.3
    while time.perf_counter() < deadline:
        fn()
    times = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < 5:
        start = time.perf_counter()
        for _ in range(inner):
            fn()
        times.append((time.perf_counter() - start) / inner)
    return statistics.median(times)


def sample_inline(loop: Callable[[int], None], count: int, rounds: int = 15) -> float:
    """Median seconds per item of ``loop(count)``, for things too short to call through a function."""
    loop(count)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        loop(count)
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


def main(cases: dict[str, Callable[[], float]], peer: str = "") -> None:
    """``peer.py NAME…`` prints {name: seconds} as JSON; no name lists the cases."""
    names = sys.argv[1:]
    if not names:
        print("\n".join(cases))
        return
    print(json.dumps({n: measured(peer, cases[n]) for n in names}))
