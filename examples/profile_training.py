"""Where the time of a training step goes: a timeline for chrome://tracing or ui.perfetto.dev, and a table.

python examples/profile_training.py [--out profile] [--steps 5]
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.optimizer import SGD
from megengine.utils.profiler import Profiler, scope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="profile", help="folder of the timeline")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()

    net = M.Sequential(M.Conv2d(3, 16, 3), M.BatchNorm2d(16), M.ReLU(), M.AdaptiveAvgPool2d(1))
    head = M.Linear(16, 10)
    params = [*net.parameters(), *head.parameters()]
    gm, opt = GradManager().attach(params), SGD(params, lr=0.1, momentum=0.9)
    image = mge.tensor(np.random.default_rng(0).standard_normal((8, 3, 32, 32)).astype("float32"))
    label = mge.tensor(np.arange(8) % 10, dtype="int32")

    def step() -> None:
        with gm:
            with scope("forward"):
                loss = F.nn.cross_entropy(head(F.flatten(net(image), 1)), label)
            with scope("backward"):
                gm.backward(loss)
        with scope("update"):
            opt.step().clear_grad()

    step()  # kernels are chosen in the first one
    with Profiler(args.out, with_scopes=True) as profiler:
        for _ in range(args.steps):
            step()
    profiler.dump()

    spent: dict[str, float] = defaultdict(float)
    for e in profiler.events():
        if e.get("cat") == "op":
            spent[e["name"]] += e["dur"]
    total = sum(spent.values())
    print(f"{total / args.steps / 1e3:.3f} ms of ops per step; timeline in {profiler.path}")
    for name, us in sorted(spent.items(), key=lambda item: -item[1])[:8]:
        print(f"{name:20s} {us / args.steps:9.1f} us {100 * us / total:5.1f} %")


if __name__ == "__main__":
    main()
