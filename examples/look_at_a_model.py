"""A network as a page to look at: its graph, memory plan, costs, times and fused ops.

python examples/look_at_a_model.py [--out page.html] [--training]
"""

from __future__ import annotations

import argparse

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD
from megengine.tools import graph_view


class Block(M.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = M.BatchNorm2d(channels)
        self.conv2 = M.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = M.BatchNorm2d(channels)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + x)


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = M.Conv2d(3, 16, 3, stride=2, padding=1)
        self.body = M.Sequential(*(Block(16) for _ in range(4)))
        self.head = M.Linear(16, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.head(F.mean(self.body(self.stem(x)), (2, 3)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="page.html", help="the page")
    parser.add_argument("--training", action="store_true", help="draw a training step instead of the network")
    args = parser.parse_args()
    net = Net()
    image = mge.tensor(np.random.default_rng(0).standard_normal((4, 3, 32, 32)).astype("float32"))
    label = mge.tensor(np.arange(4) % 10, dtype="int32")
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)

    @trace(without_host=True)
    def step(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    @trace(symbolic=True, capture_as_const=True)
    def infer(x: mge.Tensor) -> mge.Tensor:
        return net(x)

    if args.training:
        for _ in range(3):
            step(image, label)
        graph_view.write(step, args.out, title="training step")
    else:
        net.eval()
        infer(image)
        infer.dump(args.out + ".mge", arg_names=["image"], output_names=["logits"])
        graph_view.write(args.out + ".mge", args.out, run=10, title="network")
    print(f"open {args.out} in a browser")


if __name__ == "__main__":
    main()
