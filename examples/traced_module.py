"""A network as a graph: look at it, change it, fold it, save it, and run it without its code.

python examples/traced_module.py [--out traced_out]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.traced_module import TracedModule, optimize, trace_module


class Block(M.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = M.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = M.BatchNorm2d(channels)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.relu(self.bn(self.conv(x)) + x)


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = M.Conv2d(3, 8, 3, padding=1)
        self.blocks = [Block(8) for _ in range(2)]
        self.fc = M.Linear(8, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean(axis=(2, 3)))


#: What the other machine runs: it knows nothing of ``Net``.
ELSEWHERE = """
import sys, numpy as np, megengine as mge
model = mge.load(sys.argv[1])
np.save(sys.argv[3], model(mge.tensor(np.load(sys.argv[2]))).numpy())
"""


def run_elsewhere(traced: TracedModule, x: mge.Tensor, out: Path) -> Any:
    """The result of a process that has only the file."""
    mge.save(traced, out / "net.tm")
    np.save(out / "x.npy", x.numpy())
    files = [str(out / name) for name in ("net.tm", "x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", ELSEWHERE, *files], check=True)
    return np.load(out / "y.npy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="traced_out", help="folder for the files")
    out = Path(parser.parse_args().out)
    out.mkdir(parents=True, exist_ok=True)
    mge.random.seed(0)
    net = Net()
    net.eval()
    x = mge.tensor(np.random.RandomState(0).rand(2, 3, 16, 16).astype("float32"))

    traced = trace_module(net, x)
    print(traced.graph)
    print("flattened:", traced.flatten().graph.exprs().as_count(), "expressions")

    same = run_elsewhere(traced, x, out).tobytes() == net(x).numpy().tobytes()
    print("another process, the same bits:", same)

    # The features before the last layer, as one more result.
    features = traced.graph.get_node_by_name("*mean_out").as_unique()
    traced.graph.add_output_node(features)
    logits, found = traced(x)
    print("logits", logits.shape, "features", found.shape)

    # gelu in place of every relu.
    for expr in traced.graph.get_function_by_type(F.relu).as_list():
        with expr.top_graph.insert_exprs(expr):
            new = F.gelu(expr.inputs[0])
        expr.top_graph.replace_node({expr.outputs[0]: new})
        expr.top_graph.compile()
    print("relu:", traced.graph.get_function_by_type(F.relu).as_count())
    print("gelu:", traced.graph.get_function_by_type(F.gelu).as_count())

    small = optimize(trace_module(net, x), "FuseConvBn")
    gap = float(np.abs(small(x).numpy() - net(x).numpy()).max())
    print("without batch normalisation:", small.graph.get_module_by_type(M.BatchNorm2d).as_count(), f"gap {gap:.1g}")


if __name__ == "__main__":
    main()
