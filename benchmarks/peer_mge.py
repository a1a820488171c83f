"""Our side of the table, and that of MegEngine 1.13: the API is the same."""

import os

from lenet_data import batch
from peers import plain_device, set_threads, waiter
from timing import main, sample, sample_inline

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

PEER = os.environ.get("BENCH_PEER", "mge")
set_threads(PEER)
wait = waiter(PEER)


def add4() -> float:
    with plain_device(PEER):
        a, b = mge.Tensor([1.0] * 4), mge.Tensor([1.0] * 4)

    def loop(n: int) -> None:
        for _ in range(n):
            a + b
        wait()

    return sample_inline(loop, 20000)


def add4_grad() -> float:
    with plain_device(PEER):
        a, b = mge.Parameter([1.0] * 4), mge.Tensor([1.0] * 4)
    gm = GradManager().attach(a)

    def loop(n: int) -> None:
        with gm:
            for _ in range(n):
                a + b
            wait()

    return sample_inline(loop, 20000)


class LeNet(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = M.Conv2d(1, 6, 5), M.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = M.Linear(400, 120), M.Linear(120, 84), M.Linear(84, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(F.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))


def lenet(wrap=lambda f: f) -> float:
    net = LeNet()
    opt = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    gm = GradManager().attach(net.parameters())
    x, y = (mge.Tensor(v) for v in batch())

    @wrap
    def train(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        opt.clear_grad()
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step()
        return loss

    def step() -> None:
        train(x, y)
        wait()

    return sample(step, 2.0)


CASES = {
    "add4": add4,
    "add4_grad": add4_grad,
    "lenet_eager": lenet,
    "lenet_trace": lambda: lenet(trace),
    "lenet_without_host": lambda: lenet(trace(without_host=True)),
}

if __name__ == "__main__":
    main(CASES, PEER)
