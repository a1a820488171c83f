"""Prints all tables of speed, one after the other: our build beside PyTorch, and Lite beside its rivals.

    python benchmarks/run.py [--torch-python .venv-bench-torch/bin/python] [--lite-python .venv-bench-lite/bin/python]
        [--mge13-python ~/mge13/bin/python] [--tables first,ops,train] [--quick] [--rounds 5] [--json out.json]

Each table is a process of its own with a limit of time (``TABLES``), so a run ends, two hours and a half at the latest;
``--quick`` takes one round of fewer rows, within 25 minutes. A table that is stopped shows the rows that it got to. A
rival that is not there is a column of ``-``.

In the first table each round runs every case of every peer in a fresh process; a cell is the median over rounds, the
ratio the median of per-round ratios. PyTorch runs with glibc told to keep its pages, since fresh pages would slow it
down for reasons not its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import conv
import data
import matmul
import ops
import traced
import train
from peers import MGE13, absolute, environment, missed, show, times

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
    """The cases in a fresh process; a rival that is not there has NaN."""
    nothing = dict.fromkeys(cases, math.nan)
    if not python or not pathlib.Path(python).exists():
        return nothing
    env = environment(name, threads)
    done = subprocess.run([python, str(HERE / script), *cases], env=env, capture_output=True, text=True, cwd=HERE)
    if done.returncode and name == "mge":
        sys.exit(f"{script} failed:\n{done.stderr}")
    if done.returncode:
        print(f"{script}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}; left out.", file=sys.stderr)
        return nothing
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def import_cost(name: str, python: str, module: str, rounds: int = 5) -> tuple[float, float]:
    """Best import seconds and MB above bare Python; NaN where it is not installed."""

    def once(*args: str) -> tuple[float, float]:
        done = subprocess.run(
            [python, "-c", IMPORT, *args], capture_output=True, text=True, check=True, cwd="/", env=environment(name, 2)
        )
        out = done.stdout.split()
        return float(out[-2]), float(out[-1])

    try:
        bare = min(once()[1] for _ in range(2))
        runs = [once(module) for _ in range(rounds)]
    except (OSError, subprocess.CalledProcessError):
        return math.nan, math.nan
    return min(r[0] for r in runs), min(r[1] for r in runs) - bare


def first(a: argparse.Namespace) -> None:
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
        line = f"| {row:32} | {show(m):>10} | {show(t):>10} | {times(ratio):>9} | {want:.1f}x {missed(ratio, want)} |"
        if old:
            o = statistics.median(r[mine] for r in old)
            table[row]["megengine 1.13"] = o
            line += f" {show(o):>10} | {times(statistics.median(y[mine] / x[mine] for x, y in zip(ours, old))):>9} |"
        print(line)
    seconds, mb = import_cost("mge", sys.executable, "megengine")
    t_seconds, t_mb = import_cost("torch", a.torch_python, "torch")
    lines = [
        f"| {'import':32} | {show(seconds):>10} | {show(t_seconds):>10} | {times(t_seconds / seconds):>9} | < 0.2 s |",
        f"| {'memory of import, MB over bare':32} | {mb:10.0f} | {t_mb:10.0f} | {times(t_mb / mb):>9} | < 45 MB |",
    ]
    if old:
        o_seconds, o_mb = import_cost("mge13", a.mge13_python, "megengine")
        lines[0] += f" {show(o_seconds):>10} | {times(o_seconds / seconds):>9} |"
        lines[1] += f" {o_mb:10.0f} | {times(o_mb / mb):>9} |"
    print("\n".join(lines))
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({"table": table, "import_s": seconds, "import_mb": mb}, indent=1))


def threads_of(a: argparse.Namespace) -> list[int]:
    return [a.threads] if a.quick else sorted({1, a.threads})


def train_tables(a: argparse.Namespace) -> None:
    for threads in threads_of(a):
        train.table(a.torch_python, a.few, threads, "resnet18@64,adam" if a.quick else "", a.mge13_python)


def traced_tables(a: argparse.Namespace) -> None:
    for threads in threads_of(a):
        traced.table(a.torch_python, a.few, threads, "resnet18@64" if a.quick else "")


def lite_tables(a: argparse.Namespace) -> None:
    lite.table(a.lite_python, a.few, threads_of(a), "resnet18,empty" if a.quick else "")


def ops_table(a: argparse.Namespace) -> None:
    sizes = "1k,64k" if a.quick else "1k,64k,16M"
    ops.table(a.torch_python, a.few, a.threads, sizes=sizes, mge13_python=a.mge13_python)


# name -> (minutes at most, minutes at most with --quick, what prints it)
TABLES: dict[str, tuple[int, int, Callable[[argparse.Namespace], None]]] = {
    "first": (12, 4, first),
    "ops": (12, 4, ops_table),
    "matmul": (6, 2, lambda a: matmul.table(a.torch_python, a.few, a.threads)),
    "conv": (15, 4, lambda a: conv.table(a.torch_python, [1] if a.quick else [1, 16], a.few, a.threads)),
    "train": (30, 3, train_tables),
    "traced": (40, 4, traced_tables),
    "data": (6, 2, lambda a: data.table(a.torch_python, a.few)),
    "lite": (30, 2, lite_tables),
}


def bounded(name: str, minutes: float) -> bool:
    """One table as a process of its own; when its time is over it is ended with all that it started."""
    command = [sys.executable, __file__, *sys.argv[1:], "--table", name]
    table = subprocess.Popen(command, start_new_session=True)
    try:
        if table.wait(minutes * 60) == 0:
            return True
        print(f"\n{name}: failed, see above.", flush=True)
    except subprocess.TimeoutExpired:
        print(f"\n{name}: stopped after {minutes:g} minutes.", flush=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(table.pid, signal.SIGKILL)
    table.wait()
    return False


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--torch-python", type=absolute, default="", help="interpreter that has PyTorch")
    ap.add_argument("--lite-python", type=absolute, default="", help="interpreter that has Lite's rivals (lite.py)")
    ap.add_argument("--tables", default="", help=f"comma-separated: {', '.join(TABLES)}; all when left out")
    ap.add_argument("--quick", action="store_true", help="one round, fewer rows")
    ap.add_argument("--rounds", type=int, default=0, help="5, or 1 with --quick")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--json", help="also write the figures of the first table to this file")
    ap.add_argument("--table", choices=list(TABLES), help=argparse.SUPPRESS)
    for option, how in MGE13.items():
        ap.add_argument(option, **how)
    a = ap.parse_args()
    a.rounds = a.rounds or (1 if a.quick else 5)
    a.few = min(3, a.rounds)
    if a.table:
        TABLES[a.table][2](a)
        return 0
    names = [n for n in a.tables.split(",") if n] or list(TABLES)
    if unknown := sorted(set(names) - set(TABLES)):
        ap.error(f"--tables: no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    started, failed = time.monotonic(), []
    for i, name in enumerate(names):
        minutes = TABLES[name][1 if a.quick else 0]
        passed = (time.monotonic() - started) / 60
        step = f"[{i + 1}/{len(names)}] {name}"
        print(f"{step}: at most {minutes} minutes; {passed:.1f} passed", file=sys.stderr, flush=True)
        if not bounded(name, minutes):
            failed.append(name)
    if failed:
        print(f"\nnot whole: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
