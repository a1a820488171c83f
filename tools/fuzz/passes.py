"""Random graphs through every pass, alone and in any order, and edited text of graphs (mge_test_integration)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "dev" / "bin" / "mge_test_integration"


def main(budget: int, seed: int) -> dict[str, int]:
    """``budget`` graphs of each kind, from another place for each seed."""
    if not PROGRAM.exists():
        raise SystemExit(f"{PROGRAM} is missing; build it with `make build`.")
    env = {**os.environ, "MGE_FUZZ_CASES": str(budget), "MGE_FUZZ_SEED": str(seed * 1_000_003 % 2**30)}
    done = subprocess.run(
        [str(PROGRAM), "--gtest_filter=PassFuzz*", "--gtest_brief=1"], env=env, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stdout[-8000:] + done.stderr[-2000:])
    return {"graphs": 3 * budget}
