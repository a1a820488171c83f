"""Networks of the training table in our API; ``nets_torch.py`` has the same ones, layer by layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD, Adam, Optimizer


def conv_bn(i: int, o: int, kernel: int, stride: int = 1, groups: int = 1, act: M.Module | None = None) -> M.Module:
    layers = [M.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), M.BatchNorm2d(o)]
    return M.Sequential(*layers, *([act] if act else []))


class ReLU6(M.Module):
    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.relu6(x)


class LeNet(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv0, self.conv1 = M.Conv2d(1, 6, 5, padding=2), M.Conv2d(6, 16, 5)
        self.pool = M.MaxPool2d(2)
        self.fc0, self.fc1, self.fc2 = M.Linear(400, 120), M.Linear(120, 84), M.Linear(84, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.pool(F.relu(self.conv0(x)))
        x = F.flatten(self.pool(F.relu(self.conv1(x))), 1)
        return self.fc2(F.relu(self.fc1(F.relu(self.fc0(x)))))


class BasicBlock(M.Module):
    def __init__(self, i: int, o: int, stride: int):
        super().__init__()
        self.first, self.second = conv_bn(i, o, 3, stride, act=M.ReLU()), conv_bn(o, o, 3)
        self.short = conv_bn(i, o, 1, stride) if stride != 1 or i != o else M.Identity()

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.relu(self.second(self.first(x)) + self.short(x))


class ResNet18(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = M.Sequential(conv_bn(3, 64, 7, 2, act=M.ReLU()), M.MaxPool2d(3, 2, 1))
        blocks, i = [], 64
        for o, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(i, o, stride), BasicBlock(o, o, 1)]
            i = o
        self.blocks = M.Sequential(*blocks)
        self.fc = M.Linear(512, 1000)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.blocks(self.stem(x))
        return self.fc(F.mean(x, axis=(2, 3)))


class Bottleneck(M.Module):
    def __init__(self, i: int, mid: int, stride: int):
        super().__init__()
        first, second = conv_bn(i, mid, 1, act=M.ReLU()), conv_bn(mid, mid, 3, stride, act=M.ReLU())
        self.body = M.Sequential(first, second, conv_bn(mid, 4 * mid, 1))
        self.short = conv_bn(i, 4 * mid, 1, stride) if stride != 1 or i != 4 * mid else M.Identity()

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.relu(self.body(x) + self.short(x))


class ResNet50(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = M.Sequential(conv_bn(3, 64, 7, 2, act=M.ReLU()), M.MaxPool2d(3, 2, 1))
        blocks, i = [], 64
        for mid, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for k in range(count):
                blocks.append(Bottleneck(i, mid, stride if k == 0 else 1))
                i = 4 * mid
        self.blocks = M.Sequential(*blocks)
        self.fc = M.Linear(2048, 1000)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.fc(F.mean(self.blocks(self.stem(x)), axis=(2, 3)))


class InvertedResidual(M.Module):
    def __init__(self, i: int, o: int, stride: int, expand: int):
        super().__init__()
        hidden = i * expand
        wide = [conv_bn(i, hidden, 1, act=ReLU6())] if expand != 1 else []
        self.body = M.Sequential(*wide, conv_bn(hidden, hidden, 3, stride, hidden, act=ReLU6()), conv_bn(hidden, o, 1))
        self.residual = stride == 1 and i == o

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV2(M.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[M.Module] = [conv_bn(3, 32, 3, 2, act=ReLU6())]
        i = 32
        for expand, o, count, stride in (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ):
            for k in range(count):
                layers.append(InvertedResidual(i, o, stride if k == 0 else 1, expand))
                i = o
        layers.append(conv_bn(i, 1280, 1, act=ReLU6()))
        self.features = M.Sequential(*layers)
        self.fc = M.Linear(1280, 1000)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.fc(F.mean(self.features(x), axis=(2, 3)))


class Layer(M.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = M.Linear(d, 3 * d), M.Linear(d, d)
        self.up, self.down = M.Linear(d, 4 * d), M.Linear(4 * d, d)
        self.ln0, self.ln1 = M.LayerNorm(d), M.LayerNorm(d)

    def forward(self, x: mge.Tensor, mask: mge.Tensor) -> mge.Tensor:
        b, s, d = x.shape
        qkv = self.qkv(self.ln0(x)).reshape(b, s, 3, self.heads, d // self.heads).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = F.softmax(F.matmul(q, k, transpose_b=True) * (d // self.heads) ** -0.5 + mask, axis=-1)
        x = x + self.out(F.matmul(weights, v).transpose(0, 2, 1, 3).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.ln1(x))))


class Transformer(M.Module):
    def __init__(self, vocab: int = 1000, d: int = 512, layers: int = 6, seq: int = 128):
        super().__init__()
        self.embed = M.Embedding(vocab, d)
        self.position = mge.Parameter(np.zeros((seq, d), np.float32))
        self.layers = [Layer(d, 8) for _ in range(layers)]
        self.ln, self.head = M.LayerNorm(d), M.Linear(d, vocab)
        self.mask = mge.Tensor(np.triu(np.full((seq, seq), -1e9, np.float32), 1))

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        y = self.embed(x) + self.position
        for layer in self.layers:
            y = layer(y, self.mask)
        y = self.head(self.ln(y))
        return y.reshape(-1, y.shape[-1])


class Lstm(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = M.LSTM(128, 256, num_layers=2), M.Linear(256, 100)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        out, _ = self.lstm(x)
        return self.fc(out[-1])


def step(name: str, without_host: bool | None = None) -> Callable[[], object]:
    """One training step of the case, on fixed data; ``without_host``: traced, and replayed without Python or not."""
    from train import CASES

    case = CASES[name]
    data, label = case.batch()
    net = globals()[case.net]()
    params = list(net.parameters())
    opt: Optimizer = Adam(params, lr=1e-4) if case.adam else SGD(params, lr=0.01, momentum=0.9)
    gm = GradManager().attach(params)
    x, y = mge.Tensor(data), mge.Tensor(label)
    net.train()

    def run(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    call = run if without_host is None else trace(run, symbolic=without_host, without_host=without_host)
    return lambda: call(x, y).item()


def infer(net_name: str, traced: bool) -> Callable[[], object]:
    """One image of 224x224 through the network in evaluation mode."""
    net = globals()[net_name]()
    net.eval()
    x = mge.Tensor(np.random.default_rng(3).standard_normal((1, 3, 224, 224), np.float32))
    if not traced:
        return lambda: net(x).numpy()
    compiled = trace(lambda x: net(x), symbolic=True, without_host=True, capture_as_const=True)
    return lambda: compiled(x).numpy()


def adam(count: int, size: int) -> Callable[[], object]:
    """An Adam step over ``count`` parameters of ``size`` floats."""
    params = [mge.Parameter(np.full(size, 0.5, np.float32)) for _ in range(count)]
    for p in params:
        p.grad = mge.Tensor(np.full(size, 0.25, np.float32))
    opt = Adam(params, lr=1e-4)

    def run() -> object:
        opt.step()
        return params[-1][:1].numpy()

    return run
