"""Traced functions called in ways they were not recorded for, and training steps that fail."""

from __future__ import annotations

import pathlib
import sys
import warnings

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "python"


def main(budget: int, seed: int) -> dict[str, int]:
    sys.path.insert(0, str(TESTS))
    import test_failed_steps as failing  # type: ignore[import-not-found]
    import test_trace_bad_behaviour as bad  # type: ignore[import-not-found]

    warnings.simplefilter("ignore", RuntimeWarning)  # Python runs on each call: allowed there
    counted = {"sequences": 0, "training runs": 0}
    for k in range(max(1, budget // 100)):
        case = (1000 + seed * 100_003 + k) % 2**25  # which is multiplied, and a seed of NumPy has 32 bits
        for options in bad.MODES.values():
            bad.check(case, options)
            counted["sequences"] += 1
        for options in failing.MODES.values():
            failing.check(case, options)
            counted["training runs"] += 1
    return counted
