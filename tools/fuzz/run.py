#!/usr/bin/env python3
"""Attacks on what the project promises to survive: ``make fuzz``, or a small budget of each in ``make test``.

    tools/fuzz/run.py [--budget N] [--seed S] [NAME ...]

Every script in this folder is one attack: ``main(budget)`` or ``main(budget, seed)`` tries about ``budget`` cases and
returns what it counted. It runs in child processes, so a crash or a hang is a finding, told with the line that repeats
it, and not the end of the run. Exits with 1 when there are findings.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROUNDS = 4  # child processes an attack with seeds is spread over
SECONDS = 30  # that any of them may compute, and a twentieth for each case
STILL = 120  # seconds in which none of its processes computes anything
MARK = "counted: "


def attacks() -> list[str]:
    """Names of the scripts; those that begin with _ are helpers."""
    return sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "run" and not p.stem.startswith("_"))


def load(name: str) -> Callable[..., Any]:
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main  # type: ignore[no-any-return]


def takes_seed(name: str) -> bool:
    tree = (FOLDER / f"{name}.py").read_text()
    return "seed" in tree.split("def main(", 1)[-1].split(")", 1)[0]


def child(name: str, budget: int, seed: int) -> None:
    main = load(name)
    counted = main(budget, seed) if "seed" in inspect.signature(main).parameters else main(budget)
    print(MARK + json.dumps(counted if isinstance(counted, dict) else {"cases": counted}))


def computed(group: int) -> float:
    """Seconds that the processes of a group, and those that they waited for, have computed."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            words = stat.read_text().rsplit(")", 1)[1].split()
            if int(words[2]) == group:
                ticks += sum(map(int, words[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_for(started: subprocess.Popen[str], seconds: float) -> str:
    """What it says; TimeoutExpired when it computes for longer, or stands still: a busy machine is no reason."""
    last, since = 0.0, time.monotonic()
    while True:
        try:
            return started.communicate(timeout=2)[0]
        except subprocess.TimeoutExpired:
            now = computed(started.pid)
            if now > last:
                last, since = now, time.monotonic()
            if now > seconds or time.monotonic() - since > STILL:
                raise


def run_one(name: str, budget: int, seed: int) -> tuple[Counter[str], str]:
    """What a child counted, and what went wrong with it."""
    line = [sys.executable, str(FOLDER / "run.py"), "--child", name, "--budget", str(budget), "--seed", str(seed)]
    # A child and those it starts are one group, so that none is left when it hangs.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = subprocess.Popen(line, **pipes, start_new_session=True)  # type: ignore[call-overload]
    try:
        says = wait_for(started, SECONDS + budget * 0.05)
        why = f"exit status {started.returncode}" if started.returncode > 0 else ""
        if started.returncode < 0:
            why = signal.Signals(-started.returncode).name
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        says, _ = started.communicate()
        why = "hangs"
    counted: Counter[str] = Counter()
    for text in says.splitlines():
        if text.startswith(MARK):
            counted.update({k: v for k, v in json.loads(text[len(MARK) :]).items() if isinstance(v, int)})
    if why:
        tail = "\n".join("    " + t for t in says.splitlines()[-60:])
        why = f"{why}; repeat with: {' '.join(line[1:])}\n{tail}"
    return counted, why


def run(names: list[str], budget: int, seed: int) -> int:
    """Runs the attacks, prints their counts, and returns the number of findings."""
    findings = 0
    for name in names:
        begun, counted = time.monotonic(), Counter[str]()
        rounds = ROUNDS if takes_seed(name) else 1
        for k in range(rounds):
            got, why = run_one(name, max(1, budget // rounds), seed + k)
            counted += got
            if why:
                findings += 1
                print(f"FINDING {name}: {why}", flush=True)
        what = ", ".join(f"{n} {k}" for k, n in counted.items()) or "nothing"
        print(f"{name:14} {what} in {time.monotonic() - begun:.1f} s", flush=True)
    print(f"{findings} findings")
    return findings


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(attacks())}; all when none is given")
    args.add_argument("--budget", type=int, default=100_000, help="cases for each attack")
    args.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    args.add_argument("--but", default=[], action="append", metavar="NAME", help="not this one")
    args.add_argument("--child", help=argparse.SUPPRESS)
    a = args.parse_args()
    if a.child:
        child(a.child, a.budget, a.seed)
        return 0
    unknown = sorted({*a.names, *a.but} - set(attacks()))
    if unknown:
        args.error(f"no attack {', '.join(unknown)}; there are {', '.join(attacks())}")
    print(f"seed {a.seed}, {a.budget} cases each")
    return 1 if run([n for n in a.names or attacks() if n not in a.but], a.budget, a.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
