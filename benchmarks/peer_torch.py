"""The PyTorch side of the table. Run by run.py in its own virtual environment."""

import os

import torch
import torch.nn.functional as F
from lenet_data import batch
from timing import main, sample, sample_inline
from torch import nn

torch.set_num_threads(int(os.environ.get("BENCH_THREADS", "2")))


def add4() -> float:
    a, b = torch.ones(4), torch.ones(4)

    def loop(n: int) -> None:
        for _ in range(n):
            a + b

    return sample_inline(loop, 20000)


def add4_grad() -> float:
    a, b = torch.ones(4, requires_grad=True), torch.ones(4)

    def loop(n: int) -> None:
        for _ in range(n):
            a + b

    return sample_inline(loop, 20000)


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))


def lenet() -> float:
    net = LeNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = (torch.from_numpy(v) for v in batch())
    y = y.long()

    def step() -> None:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()

    return sample(step, 2.0)


CASES = {"add4": add4, "add4_grad": add4_grad, "lenet_eager": lenet}

if __name__ == "__main__":
    main(CASES)
