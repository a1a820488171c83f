"""Peak memory of a training step: eager, traced, traced without Python, beside PyTorch in its better format.

    python benchmarks/peak.py [--torch-python .venv-bench-torch/bin/python] [--only lenet,lstm] [--steps 3]

Every cell is a process of its own: VmHWM after so many steps. Load does not change it.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys

from train import CASES

HERE = pathlib.Path(__file__).parent
OURS, THEIRS = ("eager", "host", "without_host"), ("torch", "torch last")
WANTED = 0.6  # of PyTorch's


def measure(name: str, way: str, steps: int) -> None:
    """In a process of its own."""
    if way in THEIRS:
        import nets_torch as theirs

        step = theirs.step(name, way == "torch last")
    else:
        import nets_mge as ours

        step = ours.step(name, {"eager": None, "host": False, "without_host": True}[way])
    for _ in range(steps):
        step()
    status = pathlib.Path("/proc/self/status").read_text()
    print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def peak(python: str, name: str, way: str, steps: int) -> float:
    command = [python, __file__, "--measure", name, way, "--steps", str(steps)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--torch-python", default="")
    parser.add_argument("--only", default="", help="comma-separated beginnings of row names")
    parser.add_argument("--steps", type=int, default=3)
    a = parser.parse_args()
    if a.measure:
        measure(*a.measure, a.steps)
        return 0
    theirs = THEIRS if a.torch_python else ()
    print("| network | " + " | ".join(OURS) + (" | PyTorch | ratio |" if theirs else " |"))
    print("| --- |" + " --- |" * (len(OURS) + 2 * bool(theirs)))
    for name in CASES:
        if not any(name.startswith(w) for w in a.only.split(",")):
            continue
        mine = [peak(sys.executable, name, way, a.steps) for way in OURS]
        line = f"| {name} | " + " | ".join(f"{x:.0f}" for x in mine)
        if theirs:
            best = min(peak(a.torch_python, name, way, a.steps) for way in theirs if "last" not in way or "@" in name)
            ratio = max(mine) / best
            line += f" | {best:.0f} | {ratio:.2f}{'' if ratio <= WANTED else ' MISSED'}"
        print(line + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
