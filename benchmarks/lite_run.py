"""What every runtime of ``lite.py`` measures of itself, printed as one line of JSON."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from typing import Any


def since_start() -> float:
    """Seconds since the process was started, as the kernel counts."""
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def report(forward: Callable[[], object], output: Callable[[], Any], seconds: float) -> None:
    """The first result since the process began, the least and the median time of a forward, the peak of memory."""
    forward()
    values = output().reshape(-1)[:1000].tolist()
    first = since_start()
    forward()
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < 3:
        start = time.perf_counter()
        forward()
        times.append(time.perf_counter() - start)
    times.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = {"least": times[0], "median": times[len(times) // 2], "first": first, "peak": peak, "values": values}
    print(json.dumps(line), flush=True)
