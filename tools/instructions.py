#!/usr/bin/env python3
"""Instructions per small op, counted by callgrind and compared with benchmarks/instructions.json.

    tools/instructions.py PROGRAM            fail when a case takes over 5 % more than recorded
    tools/instructions.py PROGRAM --write    record

Counts do not depend on how busy the machine is, so unlike times they can decide a test. The difference of two runs
of different length leaves out what starting the program costs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

RECORD = pathlib.Path(__file__).resolve().parent.parent / "benchmarks" / "instructions.json"
#: How often a case is run in the longer run. Starting the program varies by some 300,000 instructions from run to
#: run, which must not show in the difference.
CASES = {
    "add": 20000,
    "add_broadcast": 20000,
    "add_recorded": 20000,
    "slice": 20000,
    "reshape": 20000,
    "matmul_4x4": 20000,
    "sum": 20000,
    "match_of_200_ops": 200,
    "replay_of_3_ops": 20000,
    "backward_of_20_muls": 2000,
}
SHORT = 20
ALLOWANCE = 0.05


def count(program: str, case: str, n: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", program, case, str(n)]
        done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return int(found.group(1))


def measure(program: str) -> dict[str, int]:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = {(c, n): pool.submit(count, program, c, n) for c, long in CASES.items() for n in (SHORT, long)}
        return {
            c: round((runs[c, long].result() - runs[c, SHORT].result()) / (long - SHORT)) for c, long in CASES.items()
        }


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("program", help="build/dev/bin/mge_dispatch")
    args.add_argument("--write", action="store_true", help="record what is measured")
    a = args.parse_args()
    now = measure(a.program)
    if a.write:
        RECORD.write_text(json.dumps(now, indent=1) + "\n")
    recorded = json.loads(RECORD.read_text())
    slow = []
    for case in CASES:
        ratio = now[case] / recorded[case]
        print(f"{case:22} {now[case]:8} instructions, recorded {recorded[case]:8}, {ratio:6.1%}")
        if ratio > 1 + ALLOWANCE:
            slow.append(case)
    if slow:
        print(f"over the allowance of {ALLOWANCE:.0%}: {', '.join(slow)}. If it is worth it, record with --write.")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
