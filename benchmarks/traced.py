"""A training step traced ``without_host`` beside the eager one, PyTorch eager in the better of its memory formats, and
torch.compile.

    python benchmarks/traced.py --torch-python .venv-bench-torch/bin/python [--only resnet18] [--threads 2]

Every case starts its own processes, which are asked in turn; a cell is the least of all short samples of all rounds.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable

from peers import answer_requests, least, missed, quick, run_table, set_threads, show, start_peers, times
from train import CASES

HERE = pathlib.Path(__file__).parent
WANTED = 1.3  # times PyTorch eager, and times torch.compile


def serve(peer: str) -> None:
    set_threads(peer)
    made: dict[str, Callable[[], object]] = {}

    def answer(what: str, name: str) -> float:
        if what not in made:
            if peer == "mge":
                import nets_mge as mine

                made[what] = mine.step(name, without_host=True if what == "traced" else None)
            else:
                import nets_torch as theirs

                made[what] = theirs.step(name, last=what != "plain", compiled=what == "compiled")
        return quick(made[what], 0.5)

    answer_requests(answer)


def row(name: str, torch_python: str, rounds: int, threads: int) -> str:
    images = len(CASES[name].shape) == 4
    ours, torch = start_peers(HERE / "traced.py", torch_python, threads)
    asked = [(ours, "traced"), (ours, "eager"), (torch, "plain"), (torch, "compiled")]
    asked += [(torch, "last")] if images else []
    cells = [least(cell) for cell in zip(*([p.ask(w, name) for p, w in asked] for _ in range(rounds)), strict=True)]
    ours.stop()
    torch.stop()
    traced, eager, compiled, best = cells[0], cells[1], cells[3], least([cells[2], *cells[4:]])
    verdict = missed(least((best, compiled)) / traced, WANTED)
    return (
        f"| {name:20} | {show(traced):>10} | {show(eager):>10} | {eager / traced:5.2f}x | {show(best):>10} | "
        f"{times(best / traced):>6} | {show(compiled):>13} | {times(compiled / traced):>6} | {verdict:6} |"
    )


def table(torch_python: str, rounds: int, threads: int, only: str = "") -> None:
    wanted = only.split(",") if only else list(CASES)
    print(f"\nTraining step, traced without_host, {threads} threads, {rounds} rounds, {WANTED}x of both wanted\n")
    columns = {"network": 20, "traced": 10, "eager": 10, "ratio": 6, "PyTorch": 10, "ratio ": 6}
    columns |= {"torch.compile": 13, "ratio  ": 6, "": 6}
    print("| " + " | ".join(f"{name:>{width}}" for name, width in columns.items()) + " |")
    print("| " + " | ".join("-" * width for width in columns.values()) + " |")
    for name in CASES:
        if any(name.startswith(w) for w in wanted):
            print(row(name, torch_python, rounds, threads), flush=True)


def main() -> int:
    only = {"--only": {"default": "", "help": "comma-separated beginnings of row names"}}
    return run_table(
        __doc__, serve, lambda a: table(a.torch_python, a.rounds, a.threads, a.only), rounds=3, options=only
    )


if __name__ == "__main__":
    sys.exit(main())
