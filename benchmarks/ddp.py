"""Two processes: a ResNet-18 step with averaged gradients beside PyTorch's DistributedDataParallel over Gloo, and
all-reduces of several sizes.

    python benchmarks/ddp.py --torch-python .venv-bench-torch/bin/python [--processes 2] [--rounds 3] [--threads 1]

A step is timed three ways: alone (no communication), with the gradients averaged, and the averaging by itself. What the
second is less than the sum of the others is hidden behind backward. The peers take turns, each round in fresh
processes; a cell is the least of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 24)  # bytes
SHAPE, CLASSES = (16, 3, 64, 64), 1000
WANTED = 1.1


def timed(fn: Callable[[], object], seconds: float) -> float:
    """The least of many calls. All ranks make the same number of them: as many as rank 0's first one asks for."""
    fn()
    start = time.perf_counter()
    fn()
    count = agreed(max(3, int(seconds / (time.perf_counter() - start))))
    best = float("inf")
    for _ in range(count):
        start = time.perf_counter()
        fn()
        best = min(best, time.perf_counter() - start)
    return best


agreed: Callable[[int], int]


def serve_mge(seconds: float) -> dict[str, Any]:
    global agreed
    import nets_mge

    import megengine as mge
    import megengine.distributed as dist
    import megengine.functional as F
    from megengine.autodiff import GradManager
    from megengine.optimizer import SGD

    dist.init_process_group()
    if "BENCH_THREADS" in os.environ:
        mge.device.set_num_threads(int(os.environ["BENCH_THREADS"]))
    agreed = lambda n: int(F.distributed.broadcast(mge.tensor(n, dtype="int32")).item())  # noqa: E731
    rng = np.random.default_rng(dist.get_rank())
    x = mge.tensor(rng.standard_normal(SHAPE, np.float32))
    y = mge.tensor(rng.integers(0, CLASSES, SHAPE[0]).astype(np.int32))
    net = nets_mge.ResNet18()
    dist.bcast_list_(net.tensors())
    opt = SGD(net.parameters(), lr=0.01, momentum=0.9)
    both = GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])
    alone = GradManager().attach(net.parameters())

    def step(gm: GradManager) -> None:
        with gm:
            gm.backward(F.nn.cross_entropy(net(x), y))
        opt.step().clear_grad()
        mge._full_sync()

    grads = [mge.tensor(np.ones(p.shape, np.float32)) for p in net.parameters()]
    shapes = [g.shape for g in grads]

    def exchange() -> None:
        for g in dist.helper.pack_allreduce_split(grads, shapes, dist.WORLD, "mean"):
            g.numpy()

    def reduce(size: int) -> float:
        v = mge.tensor(np.ones(size // 4, np.float32))
        return timed(lambda: F.distributed.all_reduce_sum(v).numpy(), seconds / 4)

    return {
        "alone": timed(lambda: step(alone), seconds),
        "step": timed(lambda: step(both), seconds),
        "exchange": timed(exchange, seconds / 2),
        **{str(n): reduce(n) for n in SIZES},
    }


def serve_torch(seconds: float) -> dict[str, Any]:
    global agreed
    import nets_torch
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(int(os.environ.get("BENCH_THREADS", "1")))
    dist.init_process_group("gloo")

    def agreed_torch(n: int) -> int:
        box = torch.tensor([n])
        dist.broadcast(box, 0)
        return int(box.item())

    agreed = agreed_torch
    rng = np.random.default_rng(dist.get_rank())
    x = torch.from_numpy(rng.standard_normal(SHAPE, np.float32))
    y = torch.from_numpy(rng.integers(0, CLASSES, SHAPE[0]))
    net = nets_torch.ResNet18()
    wrapped = DistributedDataParallel(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(model: Any) -> None:
        opt.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        opt.step()

    grads = [torch.ones_like(p) for p in net.parameters()]

    def exchange() -> None:
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()

    def reduce(size: int) -> float:
        v = torch.ones(size // 4)
        return timed(lambda: dist.all_reduce(v), seconds / 4)

    return {
        "alone": timed(lambda: step(net), seconds),
        "step": timed(lambda: step(wrapped), seconds),
        "exchange": timed(exchange, seconds / 2),
        **{str(n): reduce(n) for n in SIZES},
    }


def round_of(peer: str, python: str, processes: int, threads: int, seconds: float) -> dict[str, float]:
    """One run of a peer in fresh processes; the slowest rank counts."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    running = []
    for rank in range(processes):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_RANK": str(rank)}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "BENCH_THREADS": str(threads)}
        env |= {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
        if peer == "torch":  # as in the other benchmarks: fresh pages would cost it dearly
            env |= {"MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
            env |= {"MALLOC_TOP_PAD_": "268435456"}
        command = [python, str(HERE / "ddp.py"), "--serve", peer, "--seconds", str(seconds)]
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    found = [json.loads(p.communicate()[0].splitlines()[-1]) for p in running]
    return {key: max(f[key] for f in found) for key in found[0]}


def show(found: dict[str, dict[str, float]], processes: int) -> None:
    ours, theirs = found["mge"], found["torch"]
    width = 26
    print(f"\n| {'ms':{width}} | megengine | PyTorch | faster by |")
    print(f"| {'-' * width} | --------- | ------- | --------- |")
    names = {"alone": "step without communication", "step": "step, gradients averaged", "exchange": "averaging alone"}
    for key, name in names.items():
        mine, other = ours[key] * 1e3, theirs[key] * 1e3
        print(f"| {name:{width}} | {mine:9.1f} | {other:7.1f} | {other / mine:8.2f}x |")
    for name, side in (("megengine", ours), ("PyTorch", theirs)):
        hidden = (side["alone"] + side["exchange"] - side["step"]) / side["exchange"]
        print(f"{name}: {max(0.0, hidden):.0%} of the averaging is hidden behind backward")
    print(f"\nAll-reduce, {processes} processes, GB/s of the tensor\n")
    print(f"| {'bytes':>10} | megengine | PyTorch | faster by |")
    print("| ---------- | --------- | ------- | --------- |")
    for n in SIZES:
        mine, other = ours[str(n)], theirs[str(n)]
        print(f"| {n:10} | {n / mine / 1e9:9.3f} | {n / other / 1e9:7.3f} | {other / mine:8.2f}x |")
    ratio = theirs["step"] / ours["step"]
    print(f"\nstep: {ratio:.2f}x DistributedDataParallel, {WANTED}x wanted{'' if ratio >= WANTED else ' MISSED'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=".venv-bench-torch/bin/python")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each figure")
    parser.add_argument("--serve", choices=("mge", "torch"), help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.serve:
        print(json.dumps((serve_mge if a.serve == "mge" else serve_torch)(a.seconds)))
        return 0
    best: dict[str, dict[str, float]] = {"mge": {}, "torch": {}}
    for _ in range(a.rounds):
        for peer, python in (("mge", sys.executable), ("torch", a.torch_python)):
            for key, value in round_of(peer, python, a.processes, a.threads, a.seconds).items():
                best[peer][key] = min(best[peer].get(key, float("inf")), value)
    show(best, a.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
