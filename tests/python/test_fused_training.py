"""A traced training step is the eager one to the bit, whatever its ops were fused into; the report says what was."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD


class Block(M.Module):
    """Convolution, batch norm, activation; with a shortcut also the sum before the activation."""

    def __init__(self, i: int, o: int, act: Callable[..., mge.Tensor], groups: int = 1, shortcut: bool = False):
        super().__init__()
        self.conv, self.bn = M.Conv2d(i, o, 3, padding=1, groups=groups, bias=False), M.BatchNorm2d(o)
        self.side = M.Sequential(M.Conv2d(i, o, 1, bias=False), M.BatchNorm2d(o)) if shortcut else None
        self.act = act

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        y = self.bn(self.conv(x))
        return self.act(y + self.side(x) if self.side else y)


class Net(M.Module):
    def __init__(self, act: Callable[..., mge.Tensor]):
        super().__init__()
        self.stem, self.deep = Block(3, 20, act), Block(20, 20, act, groups=20)
        self.wide = Block(20, 32, act, shortcut=True)
        self.fc = M.Linear(32, 5)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.stem(x)
        x = x + self.deep(x)
        return self.fc(F.mean(self.wide(x), axis=(2, 3)))


def run(act: Callable[..., mge.Tensor], traced: bool, size: int = 9) -> tuple[list[np.ndarray], str]:
    rng = np.random.RandomState(4)
    net = Net(act)
    for p in net.parameters():
        p[...] = mge.tensor(rng.uniform(-0.5, 1, p.shape).astype("float32"))
    opt, gm = SGD(net.parameters(), lr=0.05, momentum=0.9), GradManager().attach(net.parameters())
    net.train()

    def step(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    f = trace(step, symbolic=True, without_host=True) if traced else step
    losses = []
    for k in range(5):
        x = rng.uniform(-1, 1, (3, 3, size, size + k % 2)).astype("float32")  # another size takes another program
        losses.append(f(mge.tensor(x), mge.tensor(rng.randint(0, 5, 3).astype("int32"))).numpy())
    state = [t.numpy() for t in [*net.parameters(), *net.buffers()]]
    return [*losses, *state], f.report() if isinstance(f, trace) else ""


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


FUSED = {"relu": F.relu, "relu6": F.relu6, "hswish": F.hswish, "silu": F.silu}
NOT_FUSED = {"gelu": F.gelu, "sigmoid": F.sigmoid, "leaky_relu": F.leaky_relu}


@pytest.mark.parametrize("name", [*FUSED, *NOT_FUSED])
def test_five_steps_traced_are_the_eager_ones(name: str) -> None:
    act = {**FUSED, **NOT_FUSED}[name]
    eager, traced = run(act, False), run(act, True)
    assert same(eager[0], traced[0])
    assert ("batch_norm_fused_bwd" in traced[1]) == (name in FUSED)


def test_one_pass_less_for_the_activation() -> None:
    """relu and its gradient are no instructions of their own behind a batch norm."""
    report = run(F.relu, True)[1]
    programs = report.count("program main")
    # Forward in all three blocks, backward in the two whose activation does not follow a sum.
    assert len(re.findall(r"^ *\d+ simd_batch_norm_fused ", report, re.M)) == 3 * programs
    assert len(re.findall(r"^ *\d+ simd_batch_norm_fused_bwd ", report, re.M)) == 2 * programs
    assert not re.findall(r"^ *\d+ simd_elementwise .* = relu ", report, re.M)


class Layer(M.Module):
    """A layer of a transformer: products of heads, a mask, softmax, layer norms, residual sums."""

    def __init__(self, d: int, heads: int, act: Callable[..., mge.Tensor]):
        super().__init__()
        self.heads, self.act = heads, act
        self.qkv, self.out, self.up, self.down = (
            M.Linear(d, 3 * d),
            M.Linear(d, d),
            M.Linear(d, 2 * d),
            M.Linear(2 * d, d),
        )
        self.ln0, self.ln1 = M.LayerNorm(d), M.LayerNorm(d)

    def forward(self, x: mge.Tensor, mask: mge.Tensor) -> mge.Tensor:
        b, s, d = x.shape
        qkv = self.qkv(self.ln0(x)).reshape(b, s, 3, self.heads, d // self.heads).transpose(2, 0, 3, 1, 4)
        weights = F.softmax(F.matmul(qkv[0], qkv[1], transpose_b=True) * (d // self.heads) ** -0.5 + mask, axis=-1)
        x = x + self.out(F.matmul(weights, qkv[2]).transpose(0, 2, 1, 3).reshape(b, s, d))
        return x + self.down(self.act(self.up(self.ln1(x))))


def attend(act: Callable[..., mge.Tensor], traced: bool) -> tuple[list[np.ndarray], str]:
    rng = np.random.RandomState(4)
    layer, head = Layer(24, 3, act), M.Linear(24, 5)
    params = [*layer.parameters(), *head.parameters()]
    for p in params:
        p[...] = mge.tensor(rng.uniform(-0.3, 0.3, p.shape).astype("float32"))
    opt, gm = SGD(params, lr=0.05, momentum=0.9), GradManager().attach(params)

    def step(x: mge.Tensor, mask: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(head(layer(x, mask)).reshape(-1, 5), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    f = trace(step, symbolic=True, without_host=True) if traced else step
    losses = []
    for k in range(4):
        s = 7 + 6 * (k % 2)
        x, mask = rng.uniform(-1, 1, (2, s, 24)).astype("float32"), np.triu(np.full((s, s), -1e9, "float32"), 1)
        y = rng.randint(0, 5, 2 * s).astype("int32")
        losses.append(f(mge.tensor(x), mge.tensor(mask), mge.tensor(y)).numpy())
    return [*losses, *(p.numpy() for p in params)], f.report() if isinstance(f, trace) else ""


@pytest.mark.parametrize("act", [F.gelu, F.relu, F.silu, F.tanh, F.leaky_relu], ids=lambda f: f.__name__)
def test_products_take_what_follows_them(act: Callable[..., mge.Tensor]) -> None:
    """Scale and mask of the scores, the residual sums, and in the backward pass the slope of the activation."""
    eager, traced = attend(act, False), attend(act, True)
    assert same(eager[0], traced[0])
    programs = traced[1].count("program main")
    steps = re.findall(r'steps="([^"]*)"', traced[1])
    assert steps.count("mul(y,0) add(y,1)") == programs
    assert steps.count("add(0,y)") >= 2 * programs
    if act is not F.leaky_relu:
        assert any(f"{act.__name__}_grad(0,y)" in s for s in steps)
