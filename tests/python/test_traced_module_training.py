"""A TracedModule trains like the module it came from: losses, parameters and statistics, bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import Adam
from megengine.quantization import ema_fakequant_qconfig, quantize_qat
from megengine.traced_module import trace_module

IMAGES = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype("float32")
LABELS = np.array([0, 1, 2, 3], "int32")
MODES: dict[str, Any] = {
    "eager": lambda f: f,
    "host": lambda f: trace(f, symbolic=True),
    "replayed": lambda f: trace(f, without_host=True),
}
KINDS: dict[str, Any] = {
    "module": lambda net: net,
    "traced": lambda net: trace_module(net, Tensor(IMAGES)),
    "flat": lambda net: trace_module(net, Tensor(IMAGES)).flatten(),
}


class Block(M.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = M.ConvBnRelu2d(channels, channels, 3, padding=1)
        self.second = M.ConvBn2d(channels, channels, 3, padding=1)
        self.add = M.Elemwise("FUSE_ADD_RELU")

    def forward(self, x: Tensor) -> Tensor:
        return self.add(self.second(self.first(x)), x)


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.stem = M.ConvBnRelu2d(3, 8, 3, padding=1)
        self.blocks = [Block(8), Block(8)]
        self.fc = M.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(self.quant(x))
        for block in self.blocks:
            x = block(x)
        return self.fc(F.mean(self.dequant(x), axis=(2, 3)))


def train(base: Net, kind: str, mode: str, simulated: bool) -> list[list[bytes]]:
    net = copy.deepcopy(base)
    net.train()
    net = KINDS[kind](net)
    if simulated:
        net = quantize_qat(net, inplace=False, qconfig=ema_fakequant_qconfig)
    net.train()
    params = list(net.parameters())
    gm, opt = GradManager().attach(params), Adam(params, lr=0.01)

    @MODES[mode]
    def step(x: Tensor, y: Tensor) -> Tensor:
        with gm:
            loss = F.nn.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    losses = [step(Tensor(IMAGES), Tensor(LABELS)).numpy().tobytes() for _ in range(4)]
    # Names differ once it is flat; what they hold does not.
    state = [sorted(t.numpy().tobytes() for t in ts) for ts in (params, net.buffers())]
    return [losses, *state]


@pytest.mark.parametrize("simulated", [False, True], ids=["float", "qat"])
def test_a_traced_module_trains_with_the_bits_of_its_module(simulated: bool) -> None:
    mge.random.seed(0)
    base = Net()
    want = train(base, "module", "eager", simulated)
    assert len(set(want[0])) == 4  # it learns
    for kind in KINDS:
        for mode in MODES:
            assert train(base, kind, mode, simulated) == want, (kind, mode)
