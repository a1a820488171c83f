"""Lite's C API, loaders and programs, by ``mge_fuzz_lite`` (tools/fuzz/cpp): changed model files, calls of every
function with anything, threads that share handles, no memory, command lines.

``MGE_FUZZ_BUILD`` says whose binary it is: ``dev``, or ``lite-asan``, in which any access outside of an object is a
finding. ``MGE_FUZZ_SEEDS`` names a folder with more model files to begin with.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter

from _common import DATA

ROOT = DATA.parent.parent
# What part of the budget each is: a case of `calls` is 50 calls, one of `threads` 160.
SHARES = {"files": 0.70, "calls": 0.12, "threads": 0.02, "memory": 0.10, "programs": 0.06}


def attack(name: str, cases: int, seed: int) -> Counter[str]:
    program = ROOT / "build" / os.environ.get("MGE_FUZZ_BUILD", "dev") / "bin" / "mge_fuzz_lite"
    line = [str(program), name, "--cases", str(cases), "--seed", str(seed)]
    if more := os.environ.get("MGE_FUZZ_SEEDS"):
        line += ["--seeds", str(DATA / "original"), "--seeds", str(DATA / "lite"), "--seeds", more]
    done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        print(done.stderr[-6000:])
        raise SystemExit(f"{' '.join(line)}: exit status {done.returncode}")
    said = done.stderr.split("counted: ")[-1].splitlines()[0]
    return Counter({f"{name}: {what}": n for what, n in json.loads(said).items()})


def main(budget: int, seed: int = 0) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for name, share in SHARES.items():
        counted += attack(name, max(5, int(budget * share)), seed)
    return dict(counted)
