"""Random graphs through the planner: programs against the interpreter, in any order, on poisoned memory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

BINARY = Path(__file__).resolve().parents[2] / "build" / "dev" / "bin" / "mge_test_plan"


def main(budget: int, seed: int = 0) -> dict[str, int]:
    settings = {"MGE_FUZZ_CASES": str(max(budget, 10)), "MGE_FUZZ_SEED": str(seed)}
    subprocess.run([BINARY, "--gtest_filter=*Fuzz*", "--gtest_brief=1"], env={**os.environ, **settings}, check=True)
    return {"graphs": max(budget, 10) // 10 * 10}
