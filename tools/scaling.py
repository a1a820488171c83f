#!/usr/bin/env python3
"""Networks by numbers of threads, beside PyTorch in the same run: the training steps of benchmarks/train.py and the
inference of one image.

    tools/scaling.py [--torch-python PYTHON] [--threads 1,2,4,8,16] [--only resnet50,lenet] [--json FILE]

Runs wherever megengine is installed, from a wheel too. PyTorch is taken from ``--torch-python``, else from this
interpreter if it has it, else its columns stay empty. Each cell has processes of its own that take turns; it is the
least of all short samples. PyTorch's is the better one of its two memory formats, ours of eager and traced inference
are rows of their own. ``least`` is what PyTorch needs with the number of threads that suits it best.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import sys
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))

from peers import Peer, absolute, answer_requests, quick, set_threads, show  # noqa: E402
from train import CASES  # noqa: E402

WANTED = 1.1  # times as fast as PyTorch's best, with most threads
# name: (network, traced); the rest of the rows are those of benchmarks/train.py
INFER = {
    "resnet50 bs1": ("ResNet50", False),
    "resnet50 bs1 traced": ("ResNet50", True),
    "mobilenet_v2 bs1": ("MobileNetV2", False),
    "mobilenet_v2 bs1 traced": ("MobileNetV2", True),
}


def serve(peer: str) -> None:
    set_threads(peer)
    made: dict[tuple[str, str], Callable[[], object]] = {}

    def make(name: str, layout: str) -> Callable[[], object]:
        if peer == "mge":
            import nets_mge as ours

            return ours.infer(*INFER[name]) if name in INFER else ours.step(name)
        import nets_torch as theirs

        last = layout == "last"
        return theirs.infer(INFER[name][0], last) if name in INFER else theirs.step(name, last)

    def answer(name: str, layout: str, seconds: str) -> float:
        key = (name, layout)
        if key not in made:
            made.clear()  # one network at a time
            made[key] = make(name, layout)
        return quick(made[key], float(seconds))

    answer_requests(answer)


def cell(name: str, threads: int, a: argparse.Namespace) -> tuple[float, float | None]:
    """Seconds of ours and of PyTorch."""
    images = name in INFER or len(CASES[name].shape) == 4
    ours = Peer("mge", HERE, a.python, threads)
    peers = [(ours, "plain")]
    if a.torch_python:
        peers += [
            (Peer("torch", HERE, a.torch_python, threads), f) for f in (("plain", "last") if images else ("plain",))
        ]
    seconds = [
        min(times) for times in zip(*([p.ask(name, f, str(a.seconds)) for p, f in peers] for _ in range(a.rounds)))
    ]
    for p, _ in peers:
        p.stop()
    return seconds[0], min(seconds[1:]) if a.torch_python else None


def cpu_name() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def counts(text: str) -> list[int]:
    return sorted({int(n) for n in text.split(",")})


def table(a: argparse.Namespace) -> int:
    names = [n for n in [*CASES, *INFER] if not a.only or any(n.startswith(w) for w in a.only.split(","))]
    machine = {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    found: dict[str, Any] = {"machine": machine, "seconds": {}}
    print(
        f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']:.1f}; ours / PyTorch's, how much faster\n"
    )
    heads = [f"{n} thread{'s' if n > 1 else ''}" for n in a.threads]
    print("| " + f"{'network':24}" + "".join(f" | {h:>30}" for h in heads) + " | least of PyTorch |")
    print("| " + "-" * 24 + "".join(" | " + "-" * 30 for _ in heads) + " | " + "-" * 16 + " |")
    missed = 0
    for name in names:
        rows = {threads: cell(name, threads, a) for threads in a.threads}
        found["seconds"][name] = {str(t): {"megengine": ours, "torch": theirs} for t, (ours, theirs) in rows.items()}
        line = f"| {name:24}"
        for ours, theirs in rows.values():
            text = show(ours) + (f" / {show(theirs)}, {theirs / ours:.2f}x" if theirs else "")
            line += f" | {text:>30}"
        best = min((theirs for _, theirs in rows.values() if theirs), default=None)
        verdict = "-"
        if best is not None:
            ratio = best / rows[max(rows)][0]
            missed += ratio < WANTED
            verdict = f"{ratio:.2f}x" + ("" if ratio >= WANTED else " MISSED")
        line += f" | {verdict:16}"
        print(f"{line} |", flush=True)
    if a.torch_python:
        print(
            f"\n{len(names) - missed} of {len(names)} rows at {WANTED}x PyTorch's best with {max(a.threads)} threads."
        )
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def main() -> int:
    cores = len(os.sched_getaffinity(0))
    default = ",".join(str(n) for n in (1, 2, 4, 8, 16) if n <= cores)
    here = sys.executable if importlib.util.find_spec("torch") else ""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--python", type=absolute, default=sys.executable, help="interpreter that has megengine")
    ap.add_argument("--torch-python", type=absolute, default=here, help="interpreter that has PyTorch")
    ap.add_argument("--threads", type=counts, default=default, help="comma-separated numbers of threads")
    ap.add_argument("--only", default="", help="comma-separated beginnings of row names")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--seconds", type=float, default=1.0, help="of samples in each round")
    ap.add_argument("--json", default="", help="file for the figures")
    ap.add_argument("--serve", default="", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.serve:
        serve(a.serve)
        return 0
    return table(a)


if __name__ == "__main__":
    sys.exit(main())
