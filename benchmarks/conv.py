"""Every distinct convolution of ResNet-50, forward and with both gradients, as a user calls them; beside PyTorch.

    python benchmarks/conv.py --torch-python .venv-bench-torch/bin/python [--batch 1,16] [--rounds 3]

PyTorch is measured in its default layout and in channels_last; the table compares with the faster of the two. Inputs
are what the layer before would give: ours the result of an op on a convolution's output, PyTorch's in the layout under
test. A cell is the least of all rounds.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable

from peers import answer_requests, least, missed, quick, run_table, set_threads, show, start_peers, times

HERE = pathlib.Path(__file__).parent
# channels, size, output channels, kernel, stride, padding, how often ResNet-50 has it
SHAPES = [
    (3, 224, 64, 7, 2, 3, 1),
    (64, 56, 64, 1, 1, 0, 1),
    (64, 56, 64, 3, 1, 1, 3),
    (64, 56, 256, 1, 1, 0, 4),
    (256, 56, 64, 1, 1, 0, 2),
    (256, 56, 128, 1, 1, 0, 1),
    (128, 56, 128, 3, 2, 1, 1),
    (128, 28, 512, 1, 1, 0, 4),
    (256, 56, 512, 1, 2, 0, 1),
    (512, 28, 128, 1, 1, 0, 3),
    (128, 28, 128, 3, 1, 1, 3),
    (512, 28, 256, 1, 1, 0, 1),
    (256, 28, 256, 3, 2, 1, 1),
    (256, 14, 1024, 1, 1, 0, 6),
    (512, 28, 1024, 1, 2, 0, 1),
    (1024, 14, 256, 1, 1, 0, 5),
    (256, 14, 256, 3, 1, 1, 5),
    (1024, 14, 512, 1, 1, 0, 1),
    (512, 14, 512, 3, 2, 1, 1),
    (512, 7, 2048, 1, 1, 0, 3),
    (1024, 14, 2048, 1, 2, 0, 1),
    (2048, 7, 512, 1, 1, 0, 2),
    (512, 7, 512, 3, 1, 1, 2),
]


def flops(batch: int, shape: tuple[int, ...]) -> float:
    c, h, o, k, s, p, _ = shape
    out = (h + 2 * p - k) // s + 1
    return 2.0 * batch * o * out * out * c * k * k


def mge_case(batch: int, shape: tuple[int, ...]) -> dict[str, Callable[[], object]]:
    import numpy as np

    import megengine as mge
    import megengine.functional as F
    from megengine.autodiff import GradManager

    c, h, o, k, s, p, _ = shape
    rng = np.random.default_rng(7)
    x = mge.Tensor(rng.standard_normal((batch, c, h, h), dtype=np.float32))
    w = mge.Parameter(rng.standard_normal((o, c, k, k), dtype=np.float32))
    if c > 3:  # in the memory order the layer before leaves behind
        one = mge.Tensor(np.eye(c, dtype=np.float32).reshape(c, c, 1, 1))
        x = F.relu(F.conv2d(x, one))
    gm = GradManager().attach([w] if c == 3 else [w, x])
    gy = F.relu(F.conv2d(x, w, stride=s, padding=p))

    def train() -> None:
        w.grad = x.grad = None
        with gm:
            gm.backward(F.conv2d(x, w, stride=s, padding=p), gy)

    return {"forward": lambda: F.conv2d(x, w, stride=s, padding=p), "train": train}


def torch_case(batch: int, shape: tuple[int, ...], last: bool) -> dict[str, Callable[[], object]]:
    import torch
    import torch.nn.functional as F

    c, h, o, k, s, p, _ = shape
    order = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(batch, c, h, h).to(memory_format=order).requires_grad_(c > 3)
    w = torch.randn(o, c, k, k).to(memory_format=order).requires_grad_()
    gy = torch.relu(F.conv2d(x, w, stride=s, padding=p)).detach()

    def forward() -> object:
        with torch.no_grad():
            return F.conv2d(x, w, stride=s, padding=p)

    def train() -> None:
        w.grad = x.grad = None
        F.conv2d(x, w, stride=s, padding=p).backward(gy)

    return {"forward": forward, "train": train}


def serve(peer: str) -> None:
    set_threads(peer)
    made: dict[str, dict[str, Callable[[], object]]] = {}

    def answer(batch: str, index: str, layout: str, what: str) -> float:
        key = f"{batch} {index} {layout}"
        if key not in made:
            if len(made) > 1:
                made.clear()
            shape = SHAPES[int(index)]
            made[key] = (
                mge_case(int(batch), shape) if peer == "mge" else torch_case(int(batch), shape, layout == "last")
            )
        return quick(made[key][what], 0.02)

    answer_requests(answer)


def table(torch_python: str, batches: list[int], rounds: int, threads: int, only: list[int] | None = None) -> None:
    ours, torch = start_peers(HERE / "conv.py", torch_python, threads)
    for batch in batches:
        print(f"\nResNet-50 convolutions, batch {batch}, {threads} threads, {rounds} rounds\n")
        print(
            "| shape                  | what    |  megengine | GFLOP/s |    PyTorch | channels_last | to the better |"
        )
        print(
            "| ---------------------- | ------- | ---------- | ------- | ---------- | ------------- | ------------- |"
        )
        total = {(w, who): 0.0 for w in ("forward", "train") for who in range(3)}
        for i, shape in enumerate(SHAPES):
            if only and i not in only:
                continue
            c, h, o, k, s, _, count = shape
            for what in ("forward", "train"):
                cells = [
                    (
                        ours.ask(str(batch), str(i), "-", what),
                        torch.ask(str(batch), str(i), "plain", what),
                        torch.ask(str(batch), str(i), "last", what),
                    )
                    for _ in range(rounds)
                ]
                m, t, last = (least(x) for x in zip(*cells, strict=True))
                ratio = least((t, last)) / m
                for who, v in enumerate((m, t, last)):
                    total[what, who] += v * count
                rate = flops(batch, shape) * (1 if what == "forward" else 2 if c == 3 else 3) / m / 1e9
                print(
                    f"| {f'{c}x{h} -> {o} {k}x{k} s{s}':22} | {what:7} | {show(m):>10} | {rate:7.0f} | {show(t):>10} | "
                    f"{show(last):>13} | {times(ratio):>6} {missed(ratio, 0.95)} |",
                    flush=True,
                )
        name = "these together" if only else "all of ResNet-50"
        for what in ("forward", "train"):
            m, t, last = (total[what, who] for who in range(3))
            print(
                f"| {name:22} | {what:7} | {show(m):>10} |         | {show(t):>10} | {show(last):>13} | "
                f"{times(least((t, last)) / m):>6} |"
            )
    ours.stop()
    torch.stop()


def main() -> int:
    def numbers(text: str) -> list[int]:
        return [int(v) for v in text.split(",") if v]

    options = {
        "--batch": {"default": "1,16"},
        "--only": {"default": "", "help": "comma-separated rows, counted from 0"},
    }
    return run_table(
        __doc__,
        serve,
        lambda a: table(a.torch_python, numbers(a.batch), a.rounds, a.threads, numbers(a.only)),
        rounds=3,
        options=options,
    )


if __name__ == "__main__":
    sys.exit(main())
