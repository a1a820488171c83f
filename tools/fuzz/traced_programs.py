"""Random tensor programs, traced in all modes, against eager execution (tests/python/test_trace_programs.py)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))


def main(budget: int, seed: int = 0) -> dict[str, int]:
    from test_trace_programs import check  # type: ignore[import-not-found]

    n = max(budget // 8, 1)  # a program is called 42 times
    for i in range(n):
        check((seed * 100_003 + 1_000 + i) % 2**32)
    return {"programs": n}
