#!/usr/bin/env python3
"""Print the total and the slowest steps of a build, from ninja's log."""

import argparse
from pathlib import Path

BUDGET_S = 40  # no file may take longer to compile

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("build", nargs="?", default="build/dev", type=Path)
parser.add_argument("-n", default=10, type=int)
args = parser.parse_args()

steps: dict[str, tuple[int, int]] = {}  # output -> start, end in ms; the log appends, so the last line wins
for line in (args.build / ".ninja_log").read_text().splitlines():
    if not line.startswith("#"):
        start, end, _, output, *_ = line.split("\t")
        steps[output] = (int(start), int(end))
seconds = {output: (end - start) / 1000 for output, (start, end) in steps.items()}
objects = [o for o in seconds if o.endswith(".o")]
compiling = sum(seconds[o] for o in objects)
print(f"{len(objects)} files compiled in {compiling:.1f} s of one core; all steps {sum(seconds.values()):.1f} s")
for output in sorted(seconds, key=lambda o: -seconds[o])[: args.n]:
    print(f"{seconds[output]:7.1f} s  {output}{'   over budget' if seconds[output] > BUDGET_S else ''}")
