"""A few seconds of what ``make fuzz`` does at length, with checkpoints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).parents[2] / "tools" / "fuzz" / "unpickle.py"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(FUZZ), *args], capture_output=True, text=True, timeout=300)


def test_mutated_checkpoints():
    done = run("3000")
    assert done.returncode == 0 and "3000 mutated checkpoints" in done.stdout, done.stdout + done.stderr
    loaded = int(done.stdout.split(" loaded")[0].split()[-1])
    assert ", 0 findings" in done.stdout and loaded > 100  # enough of them go all the way


def test_a_case_can_be_run_again():
    assert run("--case", "7").stdout in ("loaded\n", "refused\n")
    assert run("--bytes", "7").stdout.startswith("b")
