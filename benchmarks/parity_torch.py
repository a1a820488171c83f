"""The PyTorch side of the parity runs: a twin of each example's network, with the same names.

    .venv-bench-torch/bin/python benchmarks/parity_torch.py --write tests/data/parity_losses.json

Without --write the losses go to stdout as JSON. The file lets `make test` compare without PyTorch.
"""

from __future__ import annotations

import argparse
import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from parity_cases import BATCH, OPTIMIZERS, STEPS, batches, weights
from torch import nn


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.fc1, self.fc2, self.fc3 = nn.Linear(128, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


class BasicBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        self.blocks = nn.Sequential(*(BasicBlock(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:])))
        self.fc = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        later = torch.full((length, length), -1e9).triu(1)
        y = F.softmax(scores + later, -1) @ v
        return self.out(y.transpose(1, 2).reshape(n, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(64, 64), nn.Embedding(32, 64)
        self.blocks = nn.Sequential(Block(64, 4), Block(64, 4))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.words(words) + self.positions(torch.arange(words.shape[1])))))


NETWORKS = {"lenet": LeNet, "resnet18": ResNet18, "transformer": Transformer}


def losses(case: str, steps: int) -> list[float]:
    net = NETWORKS[case]()
    values = weights({name: tuple(p.shape) for name, p in net.named_parameters()})
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(torch.from_numpy(values[name]))
    kind, options = OPTIMIZERS[case]
    opt = getattr(torch.optim, kind)(net.parameters(), **options)

    def loss_of(x: np.ndarray, y: np.ndarray) -> torch.Tensor:
        logits = net(torch.from_numpy(x))
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), torch.from_numpy(y).long().reshape(-1))

    found = []
    for x, y in batches(case, steps):
        opt.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        opt.step()
        found.append(loss.item())
    net.eval()
    return [*found, loss_of(x, y).item()]


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--write", metavar="FILE")
    ap.add_argument("--steps", type=int, default=STEPS)
    a = ap.parse_args()
    found = {case: losses(case, a.steps) for case in BATCH}
    if not a.write:
        print(json.dumps(found))
        return 0
    command = "benchmarks/parity_torch.py --write tests/data/parity_losses.json"
    with open(a.write, "w") as f:
        json.dump({"made by": command, "torch": torch.__version__, "losses": found}, f, indent=1)
        f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
