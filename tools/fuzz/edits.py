"""Random edits of a loaded graph, dumped, loaded and run, against the same edits computed by NumPy."""

from __future__ import annotations

import sys
from pathlib import Path


def main(budget: int, seed: int = 0) -> int:
    """A graph with a few dozen edits counts as twenty cases."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))
    from test_network import fuzz

    runs = max(1, budget // 20)
    for i in range(runs):
        fuzz((seed * 1_000_003 + i) % 2**32, edits=12 + i % 30)
    return runs


if __name__ == "__main__":
    print(main(1000))
