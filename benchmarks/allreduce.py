"""All-reduce between processes of one machine: ours by shared memory and by Gloo, Gloo alone, and PyTorch's Gloo.

``python benchmarks/allreduce.py [--torch-python PATH] [--ranks 2] [--json FILE]``. Every column runs the same sizes
in the same run, one after the other and round by round, so that a machine that slows down slows all of them. A figure
is the bytes of one rank's tensor per second (what a trainer waits for), the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = [1 << 12, 1 << 16, 1 << 20, 25 << 20, 100 << 20]  # bytes; 25 MiB is the bucket of PyTorch's DDP
TIMED = r"""
import sys, time, json
def measure(call, sizes):
    out = {}
    for n in sizes:
        repeat = max(3, min(200, (64 << 20) // n))
        call(n, 2)
        before = time.perf_counter()
        call(n, repeat)
        out[n] = (time.perf_counter() - before) / repeat
    return out
"""
OURS = (
    TIMED
    + r"""
import os, numpy as np, megengine as mge
from megengine.core._core import dist, ops
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.Store("127.0.0.1", int(os.environ["MASTER_PORT"]), "bench", 60)
g = dist.Group("bench", rank, size, store, sys.argv[1], 60)
def call(n, repeat):
    x = mge.Tensor(np.ones(n // 4, "float32"))
    for _ in range(repeat):
        y = ops.dist_all_reduce(x, group="bench", rank=rank, size=size)
        g.wait()
times = measure(call, json.loads(sys.argv[2]))
"""
)
TORCH = (
    TIMED
    + r"""
import torch, torch.distributed as td
torch.set_num_threads(1)
td.init_process_group("gloo")
rank = td.get_rank()
def call(n, repeat):
    x = torch.ones(n // 4)
    for _ in range(repeat):
        td.all_reduce(x)
times = measure(call, json.loads(sys.argv[2]))
td.barrier()
td.destroy_process_group()
"""
)
RAW = (
    TIMED
    + r"""
import ctypes, os
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
lib = ctypes.CDLL(sys.argv[3])
lib.mge_bench_gloo_open.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p]
lib.mge_bench_gloo_run.argtypes = [ctypes.c_size_t, ctypes.c_int]
lib.mge_bench_gloo_open(rank, size, os.environ["BENCH_DIR"].encode())
def call(n, repeat):
    lib.mge_bench_gloo_run(n // 4, repeat)
times = measure(call, json.loads(sys.argv[2]))
"""
)
TELL = "\nif rank == 0: print(json.dumps(times))\n"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def run(python: str, script: str, ranks: int, args: list[str]) -> dict[int, float]:
    """Seconds for each size, told by rank 0."""
    server = None
    port = free_port()
    if script is OURS:
        from megengine.core._core import dist

        server = dist.StoreServer(token="bench")
        port = server.port
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), BENCH_DIR=folder)
        env["OMP_NUM_THREADS"] = "1"
        processes = [
            subprocess.Popen(
                [python, "-c", script + TELL, *args], env={**env, "RANK": str(r)}, stdout=subprocess.PIPE, text=True
            )
            for r in range(ranks)
        ]
        texts = [p.communicate(timeout=600)[0] for p in processes]
    if server:
        server.close()
    if any(p.returncode for p in processes):
        raise RuntimeError(f"a rank failed: {[p.returncode for p in processes]}")
    return {int(n): float(s) for n, s in json.loads(texts[0]).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-python", help="an interpreter that has PyTorch, for its column")
    parser.add_argument("--raw-gloo", default=str(ROOT / "build/dev/bin/libmge_bench_gloo.so"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    a = parser.parse_args()
    sizes = json.dumps(a.sizes)
    columns: dict[str, Any] = {
        "ours, shm": (sys.executable, OURS, ["shm", sizes]),
        "ours, gloo": (sys.executable, OURS, ["gloo", sizes]),
    }
    if pathlib.Path(a.raw_gloo).exists():
        columns["gloo alone"] = (sys.executable, RAW, ["", sizes, a.raw_gloo])
    if a.torch_python:
        columns["PyTorch, gloo"] = (a.torch_python, TORCH, ["", sizes])
    seen: dict[str, dict[int, list[float]]] = {c: {n: [] for n in a.sizes} for c in columns}
    for _ in range(a.rounds):
        for name, (python, script, args) in columns.items():
            for n, s in run(python, script, a.ranks, args).items():
                seen[name][n].append(s)
    print(f"{a.ranks} processes, GB/s (microseconds); median of {a.rounds} rounds")
    print(f"{'bytes':>10}" + "".join(f"{c:>22}" for c in columns))
    for n in a.sizes:
        times = {c: statistics.median(seen[c][n]) for c in columns}
        print(f"{n:>10}" + "".join(f"{n / t / 1e9:>12.2f} ({t * 1e6:>7.0f})" for t in times.values()))
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(seen, indent=1))


if __name__ == "__main__":
    main()
