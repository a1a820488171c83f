"""A forward pass with one and with two threads while two busy loops run on the same cores.

    python benchmarks/busy.py [--passes 200] [--loops 2]

Both are processes of their own that take turns, and a cell is the median, because a busy machine is the point here.
With two threads it should take at most twice as long as with one: a team must not wait for a thread that the system has
put aside. Prints the medians, the 90th percentiles and the ratio of the medians; exits with 1 when that is over 2.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import statistics
import sys
import time

import numpy as np
from peers import Peer, answer_requests, set_threads, show

HERE = pathlib.Path(__file__)


def serve(peer: str) -> None:
    set_threads(peer)
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M

    class Block(M.Module):
        """Of the kind diffusion nets are made of: norms, convolutions, a product, none of them large."""

        def __init__(self, channels: int) -> None:
            super().__init__()
            self.norm, self.act = M.GroupNorm(8, channels), M.SiLU()
            self.conv0, self.conv1 = M.Conv2d(channels, channels, 3, 1, 1), M.Conv2d(channels, channels, 1)
            self.time = M.Linear(64, channels)

        def forward(self, x: mge.Tensor, t: mge.Tensor) -> mge.Tensor:
            y = self.conv0(self.act(self.norm(x))) + self.time(t).reshape(1, -1, 1, 1)
            return x + self.conv1(self.act(y))

    blocks = [Block(64) for _ in range(8)]
    first, last = M.Conv2d(3, 64, 3, 1, 1), M.Conv2d(64, 3, 3, 1, 1)
    x = mge.Tensor(np.ones((1, 3, 32, 32), np.float32))
    t = mge.Tensor(np.ones((1, 64), np.float32))

    def forward() -> None:
        y = first(x)
        for block in blocks:
            y = block(y, F.sin(t))
        last(y).numpy()

    for _ in range(10):
        forward()

    def answer(_: str) -> float:
        began = time.perf_counter()
        forward()
        return time.perf_counter() - began

    answer_requests(answer)


def busy() -> None:
    while True:
        pass


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--passes", type=int, default=200)
    ap.add_argument("--loops", type=int, default=2)
    ap.add_argument("--serve", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.serve:
        serve(a.serve)
        return 0
    peers = {n: Peer("mge", HERE, sys.executable, n) for n in (1, 2)}
    for p in peers.values():
        p.ask("warm")
    loops = [multiprocessing.Process(target=busy, daemon=True) for _ in range(a.loops)]
    for loop in loops:
        loop.start()
    seconds: dict[int, list[float]] = {n: [] for n in peers}
    for _ in range(a.passes):
        for n, p in peers.items():
            seconds[n].append(p.ask("pass"))
    for loop in loops:
        loop.kill()
    for p in peers.values():
        p.stop()
    print(f"a forward pass beside {a.loops} busy loops on {len(os.sched_getaffinity(0))} cores, {a.passes} passes")
    for n, s in seconds.items():
        median, late = statistics.median(s), statistics.quantiles(s, n=10)[-1]
        print(f"  {n} thread{'s' if n > 1 else ' '}: median {show(median):>10}, 90th percentile {show(late):>10}")
    ratio = statistics.median(seconds[2]) / statistics.median(seconds[1])
    print(f"  two threads take {ratio:.2f} times as long as one (at most 2 wanted)")
    return int(ratio > 2)


if __name__ == "__main__":
    sys.exit(main())
