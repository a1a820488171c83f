"""What it costs to note the user's line when ops are queued.

    .venv/bin/python benchmarks/location_cost.py

Time on the caller's thread for one call, with and without the location, alternating; the smallest of many rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.core import _core

ROUNDS, CALLS = 41, 1000


def measure(call: Callable[[], object]) -> tuple[float, float]:
    best = {0: float("inf"), 1: float("inf")}
    for _ in range(ROUNDS):
        for on in (1, 0):
            _core.set_option("locations", on)
            start = time.thread_time()
            for _ in range(CALLS):
                call()
            best[on] = min(best[on], (time.thread_time() - start) / CALLS)
            _core.full_sync()
    _core.set_option("locations", 1)
    return best[1], best[0]


def main() -> None:
    a, b = mge.tensor([1.0] * 4), mge.tensor([2.0] * 4)
    net = M.Linear(4, 4)
    x = mge.tensor([[1.0] * 4])
    rows: list[tuple[str, int, Callable[[], object]]] = [
        ("a + b, queued", 1, lambda: a + b),
        ("F.exp(a), queued", 1, lambda: F.exp(a)),
        ("F.softmax(x), queued", 1, lambda: F.softmax(x, axis=1)),
        ("Linear(x), queued", 1, lambda: net(x)),
        ("a + b, inline", 0, lambda: a + b),
    ]
    print(f"{'call':28}{'with':>10}{'without':>10}{'ratio':>8}   (microseconds)")
    for name, executor, call in rows:
        _core.set_option("executor", executor)
        with_, without = measure(call)
        print(f"{name:28}{with_ * 1e6:10.3f}{without * 1e6:10.3f}{with_ / without:8.2f}")
    _core.set_option("executor", 0)
    w = mge.Parameter([1.0] * 4)
    with GradManager().attach(w):
        with_, without = measure(lambda: w * b)
    print(f"{'w * b, inline, recorded':28}{with_ * 1e6:10.3f}{without * 1e6:10.3f}{with_ / without:8.2f}")


if __name__ == "__main__":
    main()
