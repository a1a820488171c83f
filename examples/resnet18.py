"""ResNet-18 on synthetic images: SGD with momentum, a learning rate that falls, running statistics.

    python examples/resnet18.py [--steps 120] [--device gpu0] [--save run.pkl] [--resume run.pkl]

Each of ten classes has a pattern; an image is its pattern under noise. No download is needed and the loss falls.
"""

from __future__ import annotations

import sys

import training
from datasets import synthetic_images

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.data.dataset import ArrayDataset


class BasicBlock(M.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = M.BatchNorm2d(channels)
        self.conv2 = M.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = M.BatchNorm2d(channels)
        self.shortcut = (
            M.Identity()
            if stride == 1 and in_channels == channels
            else M.Sequential(M.Conv2d(in_channels, channels, 1, stride, bias=False), M.BatchNorm2d(channels))
        )

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(M.Module):
    """He et al., "Deep Residual Learning for Image Recognition", table 1."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv = M.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn = M.BatchNorm2d(64)
        self.pool = M.MaxPool2d(3, stride=2, padding=1)
        blocks, channels = [], 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(channels, width, stride), BasicBlock(width, width, 1)]
            channels = width
        self.blocks = M.Sequential(*blocks)
        self.fc = M.Linear(512, classes)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.pool(F.relu(self.bn(self.conv(x))))
        x = self.blocks(x)
        return self.fc(F.mean(x, axis=(2, 3)))


def main(argv: list[str] | None = None) -> int:
    options = training.parse(training.parser(__doc__, steps=120, batch_size=16, lr=0.01, out="resnet18_out"), argv)
    mge.random.seed(0)
    net = ResNet18()
    gm = GradManager().attach(net.parameters())
    opt = optim.SGD(net.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)
    schedule = optim.MultiStepLR(opt, milestones=[60, 100], gamma=0.1)  # counted in steps

    def step(images: mge.Tensor, labels: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(images), labels)
            gm.backward(loss)
        opt.step().clear_grad()
        schedule.step()
        return loss

    net.train()
    data = ArrayDataset(*synthetic_images(512, seed=1))
    losses = training.run(options, step, data, net=net, optimizer=opt, schedule=schedule)

    net.eval()
    images, labels = synthetic_images(100, seed=2)
    guesses = F.argmax(net(mge.Tensor(images)), axis=1).numpy()
    print(f"loss {losses[-1]:.4f}, picture in {options.out}/loss.png")
    print(f"{(guesses == labels).mean():.1%} of {len(labels)} new images are recognised")
    return 0


if __name__ == "__main__":
    sys.exit(main())
