"""Inline against asynchronous execution: the figures behind docs/adr/0003-inline-executor.md.

    .venv/bin/python benchmarks/executor_policy.py

Every sample ends with a full sync, so that queued work is paid for where it is caused. The two policies alternate, so
that a busy or throttled machine slows both.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

from lenet_data import batch
from peer_mge import LeNet

import megengine as mge
import megengine.functional as F
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.core import _core

ROUNDS = 21
POLICIES = {"inline": 0, "async": 1}


def compare(loop: Callable[[int], None], count: int) -> dict[str, list[float]]:
    """Seconds per item of ``loop(count)`` under each policy, one per round."""
    times: dict[str, list[float]] = {name: [] for name in POLICIES}
    for round_ in range(ROUNDS + 2):  # the first two warm up
        for name, value in POLICIES.items():
            _core.set_option("executor", value)
            start = time.perf_counter()
            loop(count)
            _core.full_sync()
            if round_ >= 2:
                times[name].append((time.perf_counter() - start) / count)
    _core.set_option("executor", 0)
    return times


def add(elements: int) -> Callable[[int], None]:
    a, b = mge.Tensor([1.0] * elements), mge.Tensor([1.0] * elements)

    def loop(n: int) -> None:
        for _ in range(n):
            a + b

    return loop


def lenet(read_loss: bool) -> Callable[[int], None]:
    net = LeNet()
    opt = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    gm = GradManager().attach(net.parameters())
    x, y = (mge.Tensor(v) for v in batch())

    def loop(n: int) -> None:
        for _ in range(n):
            opt.clear_grad()
            with gm:
                loss = F.nn.cross_entropy(net(x), y)
                gm.backward(loss)
            opt.step()
            if read_loss:
                loss.item()

    return loop


def main() -> None:
    cases = [
        ("a + b, 4 elements", add(4), 5000),
        ("a + b, 65536 elements", add(65536), 500),
        ("LeNet step, batch 64", lenet(read_loss=False), 20),
        ("LeNet step, loss read each step", lenet(read_loss=True), 20),
    ]
    print(f"{os.cpu_count()} cores; microseconds per item over {ROUNDS} alternating rounds: best, median")
    print(f"{'':34}{'threads':>8}{'inline':>18}{'async':>18}{'async/inline':>20}")
    for threads in (1, 2):
        _core.set_num_threads(threads)
        for name, loop, count in cases:
            times = compare(loop, count)
            inline, queued = ((min(t), statistics.median(t)) for t in (times["inline"], times["async"]))
            columns = [f"{best * 1e6:.2f}, {median * 1e6:.2f}" for best, median in (inline, queued)]
            ratios = f"{queued[0] / inline[0]:.2f}, {queued[1] / inline[1]:.2f}"
            print(f"{name:34}{threads:>8}{columns[0]:>18}{columns[1]:>18}{ratios:>20}")


if __name__ == "__main__":
    main()
