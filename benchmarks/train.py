"""A training step of whole networks, eager, beside PyTorch eager in both memory formats; and Adam alone.

    python benchmarks/train.py --torch-python .venv-bench-torch/bin/python [--only lenet,lstm] [--threads 2]
        [--mge13-python …]

Every case starts its own processes, so that the peak of memory is its own. A cell is the least of all short samples of
all rounds; the peers take turns. The peak is of the whole process, after at least three steps. MegEngine 1.13, whose
step takes up to half a minute, is asked once, after the others, for the same code as ours.
"""

from __future__ import annotations

import dataclasses
import pathlib
import resource
import sys
from collections.abc import Callable

import numpy as np
from peers import MGE13, Peer, answer_requests, least, missed, quick, run_table, set_threads, show, start_peers, times

HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Case:
    net: str
    shape: tuple[int, ...]
    classes: int
    wanted: float
    adam: bool = False
    tokens: bool = False

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(3)
        if self.tokens:
            tokens = rng.integers(0, self.classes, self.shape).astype(np.int32)
            return tokens, np.roll(tokens, -1, 1).reshape(-1)
        rows = self.shape[1] if len(self.shape) == 3 else self.shape[0]
        return rng.standard_normal(self.shape, np.float32), rng.integers(0, self.classes, rows).astype(np.int32)


CASES = {
    "lenet bs64": Case("LeNet", (64, 1, 28, 28), 10, 1.3),
    "resnet18@64 bs16": Case("ResNet18", (16, 3, 64, 64), 1000, 1.1),
    "resnet18@224 bs8": Case("ResNet18", (8, 3, 224, 224), 1000, 1.1),
    "mobilenet_v2@224 bs8": Case("MobileNetV2", (8, 3, 224, 224), 1000, 1.1),
    "transformer bs8": Case("Transformer", (8, 128), 1000, 1.1, adam=True, tokens=True),
    "lstm bs32": Case("Lstm", (64, 32, 128), 100, 1.1, adam=True),
}
ADAM = (100, 250_000)  # parameters and floats in each


def serve(peer: str) -> None:
    set_threads(peer)
    made: dict[str, Callable[[], object]] = {}

    def answer(what: str, name: str = "", layout: str = "") -> float:
        if what == "peak":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        key = f"{what} {name} {layout}"
        if key not in made:
            if peer != "torch":
                import nets_mge as mine

                made[key] = mine.adam(*ADAM) if what == "adam" else mine.step(name)
            else:
                import nets_torch as theirs

                made[key] = theirs.adam(*ADAM) if what == "adam" else theirs.step(name, layout == "last")
        return quick(made[key], 0.5)

    answer_requests(answer)


def row(name: str, case: Case, torch_python: str, rounds: int, threads: int, mge13_python: str) -> str:
    cells, peaks = [], []
    images = len(case.shape) == 4
    for layout in ("plain", "last") if images else ("plain",):
        ours, torch = start_peers(HERE / "train.py", torch_python, threads)
        both = [(ours.ask("step", name), torch.ask("step", name, layout)) for _ in range(rounds)]
        cells.append([min(side) for side in zip(*both, strict=True)])
        peaks.append((ours.ask("peak"), torch.ask("peak")))
        ours.stop()
        torch.stop()
    mine = min(c[0] for c in cells)
    theirs = [c[1] for c in cells]
    ratio = least(theirs) / mine
    peak, their_peak = max(p[0] for p in peaks), least(p[1] for p in peaks)
    verdict = missed(ratio, case.wanted) + (" MEMORY" if peak > their_peak else "")
    last = show(theirs[1]) if images else "-"
    line = (
        f"| {name:20} | {show(mine):>10} | {show(theirs[0]):>10} | {last:>13} | {times(ratio):>6} | "
        f"{case.wanted:.1f}x {verdict:6} | {peak / 2**20:6.0f} | {their_peak / 2**20:7.0f} |"
    )
    if mge13_python:
        old = Peer("mge13", HERE / "train.py", mge13_python, threads)
        seconds = old.ask("step", name)
        line += f" {show(seconds):>10} | {times(seconds / mine):>9} |"
        old.stop()
    return line


def table(torch_python: str, rounds: int, threads: int, only: str = "", mge13_python: str = "") -> None:
    """Rows whose name starts with one of the comma-separated words of ``only``, or all; ``adam`` is one of them."""
    wanted = only.split(",") if only else [*CASES, "adam"]
    names = [n for n in CASES if any(n.startswith(w) for w in wanted)]
    if names:
        print(f"\nTraining step, eager, {threads} threads, {rounds} rounds\n")
        columns = {"network": 20, "megengine": 10, "PyTorch": 10, "channels_last": 13, "faster": 6, "wanted": 11}
        columns |= {"peak MB": 7, "PyTorch's": 7} | ({"1.13": 10, "faster by": 9} if mge13_python else {})
        print("| " + " | ".join(f"{name:>{width}}" for name, width in columns.items()) + " |")
        print("| " + " | ".join("-" * width for width in columns.values()) + " |")
    for name in names:
        print(row(name, CASES[name], torch_python, rounds, threads, mge13_python), flush=True)
    if "adam" in wanted:
        adam_table(torch_python, rounds, threads)


def adam_table(torch_python: str, rounds: int, threads: int) -> None:
    from ops import triad

    count, size = ADAM
    ours, torch = start_peers(HERE / "train.py", torch_python, threads)
    both = [(ours.ask("adam"), torch.ask("adam")) for _ in range(rounds)]
    ours.stop()
    torch.stop()
    mine, theirs = (min(side) for side in zip(*both, strict=True))
    # Parameter, gradient and two states are read, all but the gradient are written.
    rate, most = count * size * 4 * 7 / mine / 1e9, triad(threads)
    print(f"\nAdam, {count} tensors of {size} floats, {threads} threads: {show(mine)}, {rate:.1f} GB/s, which is")
    print(
        f"{rate / most:.2f} of the triad's {most:.1f} (0.8 wanted); PyTorch's: {show(theirs)}, {times(theirs / mine)}"
    )


def main() -> int:
    only = {"--only": {"default": "", "help": "comma-separated beginnings of row names; adam is one"}}
    return run_table(
        __doc__,
        serve,
        lambda a: table(a.torch_python, a.rounds, a.threads, a.only, a.mge13_python),
        rounds=3,
        options={**only, **MGE13},
    )


if __name__ == "__main__":
    sys.exit(main())
