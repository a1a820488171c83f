"""What a step costs on 8 to 1,024 machines, from constants measured on one: the table of docs/scale.md.

    python benchmarks/scale_model.py                 the table, with the constants of docs/scale.md
    python benchmarks/scale_model.py --measure       measure this machine's constants first (two processes)
    python benchmarks/scale_model.py --network 12.5e9 --latency 5e-6 --gradients 46.8e6 --step 0.35

An all-reduce of n bytes among p processes, with latency a per message, b bytes per second on a link and r bytes per
second of adding:

    direct        2 a + 2 (p-1) s + 2 (p-1)/p n/b + (p-1)/p n/r   what the engine does: each piece has an owner, which
                                                                  adds the pieces of all in the order of ranks; s is
                                                                  the time to hand over one message
    ring          2 (p-1) a + 2 (p-1)/p n/b + (p-1)/p n/r         the same volume, in steps that wait for each other
    tree          2 log2(p) (a + n/b) + log2(p) n/r               to the root and back
    layered       direct among the g processes of a machine over memory, then among machines for n/g each; the engine
                  does not do this yet

A ring's latency is a chain; direct sends leave one after the other and meet at the receiver. In a flat group the
processes of a machine share its network.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Machine:
    """Constants; times in seconds, rates in bytes per second."""

    memory_latency: float = 6e-6  # a message between processes of one machine
    memory: float = 4.2e9  # bytes per second between them
    adding: float = 22e9
    latency: float = 30e-6  # a message between machines
    network: float = 1.25e9  # 10 Gbit/s
    processes: int = 4  # of each machine
    step: float = 0.35  # seconds of computing
    gradients: float = 46.8e6  # bytes; ResNet-18
    hidden: float = 0.6  # the part of backward, and so of the step, that communication can hide behind
    spread: float = 0.02  # standard deviation of a step's time, relative
    connect: float = 120e-6  # seconds to set up one connection
    call: float = 250e-6  # seconds of the server for one call


def direct(p: int, n: float, a: float, b: float, r: float) -> float:
    """Every piece to its owner, and the sums back; messages of a process leave one after the other."""
    return 2 * (a + (p - 1) / p * n / b) + 2 * (p - 1) * SEND + (p - 1) / p * n / r


def ring(p: int, n: float, a: float, b: float, r: float) -> float:
    return 2 * (p - 1) * a + 2 * (p - 1) / p * n / b + (p - 1) / p * n / r


def tree(p: int, n: float, a: float, b: float, r: float) -> float:
    depth = math.ceil(math.log2(p))
    return 2 * depth * (a + n / b) + depth * n / r


def hierarchical(nodes: int, g: int, n: float, m: Machine) -> float:
    """Within machines first; the g processes of a machine share its network, each with an n/g-th of the tensor."""
    inside = direct(g, n, m.memory_latency, m.memory, m.adding) if g > 1 else 0.0
    return inside + direct(nodes, n / g, m.latency, m.network / g, m.adding)


SEND = 4e-6  # seconds to hand one message to the system


def flat(nodes: int, m: Machine, way: Callable[..., float]) -> float:
    """Among all processes alike: those of a machine share its network."""
    return way(nodes * m.processes, m.gradients, m.latency, m.network / m.processes, m.adding)


def waiting(p: int, m: Machine) -> float:
    """How much longer the slowest of p steps takes than the mean one."""
    return m.step * m.spread * math.sqrt(2 * math.log(p)) if p > 1 else 0.0


def step_of(communication: float, p: int, m: Machine) -> float:
    """Computing, what communication does not hide behind backward, and the wait for the slowest."""
    return m.step + waiting(p, m) + max(0.0, communication - m.hidden * m.step)


def start_of(p: int, m: Machine) -> float:
    """Every process calls the server three times, and connects to every other."""
    return p * m.call * 3 + (p - 1) * m.connect


NODES = (1, 8, 16, 32, 64, 128, 256, 512, 1024)
HEAD = ("machines", "processes", "direct", "ring", "tree", "layered", "slowest", "step", "of ideal", "layered step")
HEAD = (*HEAD, "sockets", "start s")


def table(m: Machine) -> list[str]:
    """Times in ms. A step is what the engine's way, direct, makes of it; then the same with the layered one."""
    rows = ["| " + " | ".join(HEAD) + " |", "| ---: " * len(HEAD) + "|"]
    for nodes in NODES:
        p = nodes * m.processes
        layered = hierarchical(nodes, m.processes, m.gradients, m)
        # On one machine the processes share its memory, and none uses the network.
        costs = [flat(nodes, m, way) for way in (direct, ring, tree)] if nodes > 1 else [layered] * 3
        step = step_of(costs[0], p, m)
        times = [*costs, layered, waiting(p, m), step]
        cells = [nodes, p, *(f"{1e3 * t:.0f}" for t in times), f"{m.step / step:.0%}"]
        cells += [f"{1e3 * step_of(layered, p, m):.0f}", p - 1 if nodes > 1 else 0, f"{start_of(p, m):.1f}"]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return rows


def first(holds: Callable[[int], bool]) -> int | None:
    """The first power of two of machines, up to 65,536, of which something holds."""
    return next((1 << k for k in range(1, 17) if holds(1 << k)), None)


def limits(m: Machine) -> list[str]:
    """What breaks first, by the number of machines."""
    g = m.processes
    found = {
        "communication is longer than the backward it can hide behind": first(
            lambda n: flat(n, m, direct) > m.hidden * m.step
        ),
        "the same, layered": first(lambda n: hierarchical(n, g, m.gradients, m) > m.hidden * m.step),
        "a process has more connections than files it may open (1,024 by `ulimit -n`)": first(lambda n: n * g > 1000),
        "the start takes a minute": first(lambda n: start_of(n * g, m) > 60),
        "waiting for the slowest costs a tenth of the step": first(lambda n: waiting(n * g, m) > 0.1 * m.step),
    }
    order = sorted(found.items(), key=lambda item: item[1] or 1 << 30)
    return [f"- {f'{n:,} machines' if n else 'not up to 65,536'}: {what}" for what, n in order]


def measured(m: Machine) -> Machine:
    """This machine's constants, by two processes."""
    import numpy as np

    import megengine as mge
    import megengine.distributed as dist

    def best(fn: Callable[[], object], count: int) -> float:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            fn()
            times.append(time.perf_counter() - start)
        return min(times)

    def work() -> tuple[float, float, float]:
        small, large = mge.tensor(np.ones(1, np.float32)), mge.tensor(np.ones(1 << 22, np.float32))
        latency = best(lambda: dist.functional.all_reduce_sum(small).numpy(), 200)
        whole = best(lambda: dist.functional.all_reduce_sum(large).numpy(), 20)
        client = dist.get_client()
        return latency, whole, best(lambda: client.user_set("x", 1), 200)

    latency, whole, call = dist.launcher(work, n_gpus=2)()[0]
    a, b = np.ones(1 << 22, np.float32), np.ones(1 << 22, np.float32)
    adding = a.nbytes / best(lambda: np.add(a, b, out=a), 20)
    n = 4.0 * (1 << 22)
    # Two processes: 2 a + n/b + n/2r seconds.
    rate = n / max(1e-9, whole - latency - n / 2 / adding)
    print(f"measured: latency {latency / 2 * 1e6:.0f} us, {rate / 1e9:.2f} GB/s, adding {adding / 1e9:.2f} GB/s, ")
    print(f"          a call of the server {call * 1e6:.0f} us")
    return replace(m, memory_latency=latency / 2, memory=rate, adding=adding, call=call)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure the constants of this machine")
    default = Machine()
    for name in ("network", "latency", "gradients", "step", "spread", "hidden"):
        parser.add_argument(f"--{name}", type=float, default=getattr(default, name))
    parser.add_argument("--processes", type=int, default=default.processes, help="of each machine")
    a = parser.parse_args()
    names = ("network", "latency", "gradients", "step", "spread", "hidden", "processes")
    machine = replace(default, **{name: getattr(a, name) for name in names})
    if a.measure:
        machine = measured(machine)
    print("\n".join([*table(machine), "", "What breaks first:", *limits(machine)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
