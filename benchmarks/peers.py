"""Processes asked for one cell in turn, so that a busy moment of the machine hits all; their command line."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

PEERS = ("mge", "torch", "mge13")  # ours, PyTorch, and if asked for MegEngine 1.13
# glibc told to keep its pages: fresh ones would slow PyTorch down for reasons not its own.
KEEP_PAGES = {
    "MALLOC_MMAP_THRESHOLD_": "8589934592",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}


def absolute(path: str) -> str:
    """Of an interpreter: a link is not followed, since that would leave its virtual environment."""
    return str(pathlib.Path(path).absolute()) if path else ""


MGE13 = {"--mge13-python": {"type": absolute, "default": "", "help": "interpreter that has MegEngine 1.13"}}


def environment(name: str, threads: int) -> dict[str, str]:
    """Of a peer. Our build is on PYTHONPATH, where the others must not find it."""
    env = {**os.environ, "BENCH_PEER": name, "BENCH_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    if name != "mge":
        env.pop("PYTHONPATH", None)
    return {**env, **KEEP_PAGES} if name == "torch" else env


class Peer:
    """A script run as ``script --serve NAME``: a line of tab-separated words in, a number out.

    A rival that is not there, or that dies, answers NaN, which tables show as ``-``; that we die is an error.
    """

    def __init__(self, name: str, script: pathlib.Path, python: str, threads: int):
        self.name = name
        self.process: subprocess.Popen[str] | None = None
        if not python or not pathlib.Path(python).exists():
            assert name != "mge"
            return
        cmd = [python, str(script), "--serve", name]
        env = environment(name, threads)
        self.process = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ask(self, *words: str) -> float:
        if self.process is None:
            return math.nan
        assert self.process.stdin and self.process.stdout
        answer = ""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("\t".join(words) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        if answer:
            return float(json.loads(answer))
        if self.name == "mge":
            sys.exit(f"benchmark: our process died at {words}.")
        print(f"benchmark: {self.name} died at {words}; left out from here on.", file=sys.stderr)
        self.stop()
        return math.nan

    def stop(self) -> None:
        if self.process is None:
            return
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process = None


def start_peers(script: pathlib.Path, torch_python: str, threads: int) -> tuple[Peer, Peer]:
    return Peer("mge", script, sys.executable, threads), Peer("torch", script, torch_python, threads)


def times(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{ratio:.2f}x"


def least(values: Iterable[float]) -> float:
    """Of those that were measured."""
    return min((v for v in values if not math.isnan(v)), default=math.nan)


def missed(ratio: float, wanted: float) -> str:
    """What cannot be compared is not missed."""
    return "MISSED" if ratio < wanted else ""


def run_table(
    doc: str | None,
    serve: Callable[[str], None],
    table: Callable[[argparse.Namespace], None],
    rounds: int,
    options: dict[str, dict[str, Any]] | None = None,
) -> int:
    """The ``main`` of a script that is both the table and, as ``script --serve NAME``, its peers.

    Args:
        doc: what ``--help`` says.
        serve: answers requests as the peer of that name.
        table: prints the table for the parsed arguments.
        rounds: how often each cell is asked for, if not said.
        options: more options with what ``add_argument`` takes.
    """
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--torch-python", type=absolute, default="", help="interpreter that has PyTorch")
    ap.add_argument("--rounds", type=int, default=rounds)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--serve", choices=PEERS, help=argparse.SUPPRESS)
    for name, how in (options or {}).items():
        ap.add_argument(name, **how)
    a = ap.parse_args()
    if a.serve:
        serve(a.serve)
    else:
        table(a)
    return 0


def set_threads(peer: str) -> None:
    threads = int(os.environ.get("BENCH_THREADS", "2"))
    if peer == "mge":
        from megengine.core import _core

        _core.set_num_threads(threads)
    elif peer == "mge13":
        import megengine

        megengine.set_default_device(f"multithread{threads}:0")
    else:
        import torch

        torch.set_num_threads(threads)


@contextlib.contextmanager
def plain_device(peer: str) -> Iterator[None]:
    """For tensors of small ops: MegEngine 1.13 hands them over faster on the device without a thread pool."""
    if peer != "mge13":
        yield
        return
    import megengine

    device = megengine.get_default_device()
    megengine.set_default_device("xpux")
    yield
    megengine.set_default_device(device)


def waiter(peer: str) -> Callable[[], object]:
    """What to call for queued work to be done: MegEngine 1.13 returns before it is."""
    if peer != "mge13":
        return lambda: None
    import megengine

    return megengine._full_sync


def measured(peer: str, fn: Callable[[], float]) -> float:
    """``fn()``; NaN for what MegEngine 1.13 cannot do."""
    if peer != "mge13":
        return fn()
    try:
        return fn()
    except Exception as error:
        print(f"MegEngine 1.13: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
        return math.nan


def answer_requests(answer: Callable[..., float]) -> None:
    for line in sys.stdin:
        print(json.dumps(answer(*line.rstrip("\n").split("\t"))), flush=True)


def quick(fn: Callable[[], object], seconds: float = 0.05, wait: Callable[[], object] = lambda: None) -> float:
    """Least seconds of a call among short samples of about 1 ms: what the machine does when nobody else wants it."""
    fn(), fn(), wait()
    start = time.perf_counter()
    fn(), wait()
    inner = max(1, min(1000, int(1e-3 / (time.perf_counter() - start))))
    times = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < 3:
        start = time.perf_counter()
        for _ in range(inner):
            fn()
        wait()
        times.append((time.perf_counter() - start) / inner)
    return min(times)


def show(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
