"""Prints the speed tables: our build beside PyTorch, in alternating rounds of one run; then those of ops.py, matmul.py,
conv.py, data.py and lite.py.

    python benchmarks/run.py --torch-python .venv-bench-torch/bin/python [--rounds 5] [--json out.json]
        [--mge13-python .venv-mge13/bin/python] [--first]

Each round runs every case of every peer in a fresh process; a cell is the median over rounds, the ratio the median of
per-round ratios. PyTorch runs with glibc told to keep its pages, since fresh pages would slow it down for reasons not
its own.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import conv
import data
import matmul
import ops
import traced
import train
from peers import MGE13, absolute, environment, show, times

import lite

HERE = pathlib.Path(__file__).parent
# (row, our case, PyTorch's case, times faster we want to be)
ROWS = [
    ("a + b, 4 elements", "add4", "add4", 2.0),
    ("a + b with a gradient recorded", "add4_grad", "add4_grad", 2.0),
    ("LeNet step bs64, eager", "lenet_eager", "lenet_eager", 1.2),
    ("LeNet step bs64, traced", "lenet_trace", "lenet_eager", 1.2),
    ("LeNet step bs64, without_host", "lenet_without_host", "lenet_eager", 1.6),
]
IMPORT = """
import resource, sys, time
start = time.perf_counter()
if len(sys.argv) > 1: __import__(sys.argv[1])
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peer(name: str, python: str, script: str, cases: list[str], threads: int) -> dict[str, float]:
    env = environment(name, threads)
    done = subprocess.run([python, str(HERE / script), *cases], env=env, capture_output=True, text=True, cwd=HERE)
    if done.returncode:
        sys.exit(f"{script} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def import_cost(name: str, python: str, module: str, rounds: int = 5) -> tuple[float, float]:
    """Best import seconds and MB above bare Python."""

    def once(*args: str) -> tuple[float, float]:
        done = subprocess.run(
            [python, "-c", IMPORT, *args], capture_output=True, text=True, check=True, cwd="/", env=environment(name, 2)
        )
        out = done.stdout.split()
        return float(out[-2]), float(out[-1])

    bare = min(once()[1] for _ in range(2))
    runs = [once(module) for _ in range(rounds)]
    return min(r[0] for r in runs), min(r[1] for r in runs) - bare


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--torch-python", type=absolute, required=True, help="interpreter that has PyTorch")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--json", help="also write the figures to this file")
    ap.add_argument("--lite-python", type=absolute, default="", help="interpreter that has Lite's rivals (lite.py)")
    ap.add_argument("--first", action="store_true", help="the first table only")
    for option, how in MGE13.items():
        ap.add_argument(option, **how)
    a = ap.parse_args()
    ours_cases = sorted({r[1] for r in ROWS})
    torch_cases = sorted({r[2] for r in ROWS})
    ours: list[dict[str, float]] = []
    torch: list[dict[str, float]] = []
    old: list[dict[str, float]] = []
    for i in range(a.rounds):
        print(f"round {i + 1}/{a.rounds} …", file=sys.stderr, flush=True)
        ours.append(peer("mge", sys.executable, "peer_mge.py", ours_cases, a.threads))
        torch.append(peer("torch", a.torch_python, "peer_torch.py", torch_cases, a.threads))
        if a.mge13_python:
            old.append(peer("mge13", a.mge13_python, "peer_mge.py", ours_cases, a.threads))
    print(f"\n{time.strftime('%Y-%m-%d')}, {a.threads} threads, {a.rounds} rounds, load {os.getloadavg()[0]:.2f}\n")
    print(
        f"| {'case':32} | {'megengine':>10} | {'PyTorch':>10} | faster by | wanted |"
        + (f" {'1.13':>10} | faster by |" if old else "")
    )
    print(
        f"| {'-' * 32} | {'-' * 10} | {'-' * 10} | --------- | ------ |" + (f" {'-' * 10} | --------- |" if old else "")
    )
    table = {}
    for row, mine, theirs, want in ROWS:
        m, t = statistics.median(r[mine] for r in ours), statistics.median(r[theirs] for r in torch)
        ratio = statistics.median(y[theirs] / x[mine] for x, y in zip(ours, torch))
        table[row] = {"megengine": m, "torch": t, "ratio": ratio, "wanted": want}
        verdict = f"{want:.1f}x" + ("" if ratio >= want else " MISSED")
        line = f"| {row:32} | {show(m):>10} | {show(t):>10} | {ratio:8.2f}x | {verdict} |"
        if old:
            o = statistics.median(r[mine] for r in old)
            table[row]["megengine 1.13"] = o
            line += f" {show(o):>10} | {times(statistics.median(y[mine] / x[mine] for x, y in zip(ours, old))):>9} |"
        print(line)
    seconds, mb = import_cost("mge", sys.executable, "megengine")
    t_seconds, t_mb = import_cost("torch", a.torch_python, "torch")
    lines = [
        f"| {'import':32} | {show(seconds):>10} | {show(t_seconds):>10} | {t_seconds / seconds:8.2f}x | < 0.2 s |",
        f"| {'memory of import, MB over bare':32} | {mb:10.0f} | {t_mb:10.0f} | {t_mb / mb:8.2f}x | < 45 MB |",
    ]
    if old:
        o_seconds, o_mb = import_cost("mge13", a.mge13_python, "megengine")
        lines[0] += f" {show(o_seconds):>10} | {times(o_seconds / seconds):>9} |"
        lines[1] += f" {o_mb:10.0f} | {times(o_mb / mb):>9} |"
    print("\n".join(lines))
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({"table": table, "import_s": seconds, "import_mb": mb}, indent=1))
    if a.first:
        return 0
    rounds = min(3, a.rounds)
    ops.table(a.torch_python, rounds, a.threads, mge13_python=a.mge13_python)
    matmul.table(a.torch_python, rounds, a.threads)
    conv.table(a.torch_python, [1, 16], rounds, a.threads)
    for threads in sorted({1, a.threads}):
        train.table(a.torch_python, rounds, threads, mge13_python=a.mge13_python)
        traced.table(a.torch_python, rounds, threads)
    data.table(a.torch_python, rounds)
    lite.table(a.lite_python, rounds, sorted({1, a.threads}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
