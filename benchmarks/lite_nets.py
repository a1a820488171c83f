"""Networks of the inference table, written once: a net is a function of a builder, which has the ops. ``lite_mge.py``
builds them of our ops, ``lite_onnx.py`` as ONNX graphs; weights are drawn here, so both hold the same ones.

    NETS["resnet18"](builder, builder.input((1, 3, 224, 224)))
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
SHAPE = (1, 3, 224, 224)


class Builder(Protocol):
    """Ops over values that only it can look into; weights come in the order [out, in / groups, kh, kw]."""

    def conv(self, x: Any, w: Array, bias: Array | None, stride: int, pad: int, groups: int) -> Any: ...
    def batch_norm(self, x: Any, scale: Array, shift: Array, mean: Array, var: Array) -> Any: ...
    def act(self, x: Any, kind: str) -> Any: ...
    def max_pool(self, x: Any, kernel: int, stride: int, pad: int) -> Any: ...
    def add(self, x: Any, y: Any) -> Any: ...
    def concat(self, x: Any, y: Any) -> Any: ...
    def halves(self, x: Any, channels: int) -> tuple[Any, Any]: ...
    def shuffle(self, x: Any, channels: int, size: int) -> Any: ...
    def mean(self, x: Any) -> Any: ...
    def flatten(self, x: Any) -> Any: ...
    def linear(self, x: Any, w: Array, bias: Array) -> Any: ...
    def embed(self, x: Any, table: Array, positions: Array) -> Any: ...
    def layer_norm(self, x: Any, scale: Array, shift: Array) -> Any: ...
    def attention(self, qkv: Any, heads: int, mask: Array) -> Any: ...
    def lstm(self, x: Any, w: Array, state_w: Array, bias: Array, state_bias: Array) -> Any: ...
    def last(self, x: Any) -> Any: ...


class Maker:
    """A builder with weights: what networks are written with."""

    def __init__(self, b: Builder, seed: int = 7):
        self.b = b
        self.rng = np.random.default_rng(seed)
        # LITE_REPEATING=1 draws few values and repeats them, so that files can be packed small (lite_pack.py).
        self.few = self.rng.standard_normal(4093) if "LITE_REPEATING" in os.environ else None

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        if self.few is not None:
            self.few = np.roll(self.few, 1)  # equal tensors would be kept once
            return np.resize((scale * self.few).astype(np.float32), shape)
        return (scale * self.rng.standard_normal(shape)).astype(np.float32)

    def near_one(self, size: int) -> Array:
        if self.few is not None:
            return np.ones(size, np.float32)
        return self.rng.uniform(0.8, 1.2, size).astype(np.float32)

    def conv(self, x: Any, i: int, o: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Any:
        w = self.normal(o, i // groups, kernel, kernel, scale=(2.0 / (i // groups * kernel**2)) ** 0.5)
        return self.b.conv(x, w, self.normal(o, scale=0.1) if bias else None, stride, kernel // 2, groups)

    def conv_bn(self, x: Any, i: int, o: int, kernel: int, stride: int = 1, groups: int = 1, act: str = "") -> Any:
        x = self.conv(x, i, o, kernel, stride, groups)
        # Near 1 and 0, as trained ones are: values stay of one size through fifty layers.
        scale, var = self.near_one(o), self.near_one(o)
        x = self.b.batch_norm(x, scale, self.normal(o, scale=0.1), self.normal(o, scale=0.1), var)
        return self.b.act(x, act) if act else x

    def linear(self, x: Any, i: int, o: int) -> Any:
        return self.b.linear(x, self.normal(o, i, scale=i**-0.5), self.normal(o, scale=0.1))

    def layer_norm(self, x: Any, d: int) -> Any:
        return self.b.layer_norm(x, self.near_one(d), self.normal(d, scale=0.1))


def resnet(blocks: tuple[int, ...], bottleneck: bool) -> Callable[[Maker, Any], Any]:
    def net(m: Maker, x: Any) -> Any:
        x = m.b.max_pool(m.conv_bn(x, 3, 64, 7, 2, act="relu"), 3, 2, 1)
        i = 64
        for stage, count in enumerate(blocks):
            mid = 64 << stage
            o = 4 * mid if bottleneck else mid
            for k in range(count):
                stride = 2 if k == 0 and stage else 1
                if bottleneck:
                    y = m.conv_bn(x, i, mid, 1, act="relu")
                    y = m.conv_bn(m.conv_bn(y, mid, mid, 3, stride, act="relu"), mid, o, 1)
                else:
                    y = m.conv_bn(m.conv_bn(x, i, o, 3, stride, act="relu"), o, o, 3)
                short = m.conv_bn(x, i, o, 1, stride) if stride != 1 or i != o else x
                x, i = m.b.act(m.b.add(y, short), "relu"), o
        return m.linear(m.b.mean(x), i, 1000)

    return net


MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(m: Maker, x: Any) -> Any:
    x, i = m.conv_bn(x, 3, 32, 3, 2, act="relu6"), 32
    for expand, o, count, first in MOBILE:
        for k in range(count):
            stride, hidden = first if k == 0 else 1, i * expand
            y = m.conv_bn(x, i, hidden, 1, act="relu6") if expand != 1 else x
            y = m.conv_bn(m.conv_bn(y, hidden, hidden, 3, stride, hidden, act="relu6"), hidden, o, 1)
            x, i = m.b.add(x, y) if stride == 1 and i == o else y, o
    x = m.conv_bn(x, i, 1280, 1, act="relu6")
    return m.linear(m.b.mean(x), 1280, 1000)


def shufflenet_v2(m: Maker, x: Any) -> Any:
    x = m.b.max_pool(m.conv_bn(x, 3, 24, 3, 2, act="relu"), 3, 2, 1)
    i, size = 24, 56
    for o, count in ((116, 4), (232, 8), (464, 4)):
        half, size = o // 2, size // 2
        for k in range(count):
            stride, wide = (2, i) if k == 0 else (1, half)
            if k == 0:
                left = m.conv_bn(m.conv_bn(x, i, i, 3, 2, i), i, half, 1, act="relu")
                right = x
            else:
                left, right = m.b.halves(x, o)
            right = m.conv_bn(right, wide, half, 1, act="relu")
            right = m.conv_bn(m.conv_bn(right, half, half, 3, stride, half), half, half, 1, act="relu")
            x = m.b.shuffle(m.b.concat(left, right), o, size)
        i = o
    return m.linear(m.b.mean(m.conv_bn(x, i, 1024, 1, act="relu")), 1024, 1000)


def vgg16(m: Maker, x: Any) -> Any:
    i = 3
    for o, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x, i = m.b.act(m.conv(x, i, o, 3, bias=True), "relu"), o
        x = m.b.max_pool(x, 2, 2, 0)
    x = m.b.act(m.linear(m.b.flatten(x), 512 * 49, 4096), "relu")
    return m.linear(m.b.act(m.linear(x, 4096, 4096), "relu"), 4096, 1000)


WORDS, WIDTH, LAYERS, HEADS, TOKENS = 1000, 512, 6, 8, 128


def transformer(m: Maker, x: Any) -> Any:
    """Tokens [1, TOKENS] to what follows each of them: that of ``nets_mge.py``."""
    d, mask = WIDTH, np.triu(np.full((TOKENS, TOKENS), -1e9, np.float32), 1)
    y = m.b.embed(x, m.normal(WORDS, d), m.normal(TOKENS, d, scale=0.1))
    for _ in range(LAYERS):
        y = m.b.add(y, m.linear(m.b.attention(m.linear(m.layer_norm(y, d), d, 3 * d), HEADS, mask), d, d))
        y = m.b.add(y, m.linear(m.b.act(m.linear(m.layer_norm(y, d), d, 4 * d), "gelu"), 4 * d, d))
    return m.linear(m.layer_norm(y, d), d, WORDS)


STEPS, FEATURES, STATE = 64, 128, 256


def lstm(m: Maker, x: Any) -> Any:
    """A sequence [STEPS, 1, FEATURES] through two layers, classified by the last state: that of ``nets_mge.py``."""
    i = FEATURES
    for _ in range(2):
        wide = 4 * STATE  # gates in the order i, f, g, o
        w, state_w = m.normal(wide, i, scale=i**-0.5), m.normal(wide, STATE, scale=STATE**-0.5)
        x, i = m.b.lstm(x, w, state_w, m.normal(wide, scale=0.1), m.normal(wide, scale=0.1)), STATE
    return m.linear(m.b.last(x), STATE, 100)


NETS: dict[str, Callable[[Maker, Any], Any]] = {
    "resnet18": resnet((2, 2, 2, 2), False),
    "resnet50": resnet((3, 4, 6, 3), True),
    "mobilenet_v2": mobilenet_v2,
    "shufflenet_v2": shufflenet_v2,
    "vgg16": vgg16,
    "transformer": transformer,
    "lstm": lstm,
    "empty": lambda m, x: m.b.act(x, "relu"),
}


SHAPES = {"empty": (1,), "transformer": (1, TOKENS), "lstm": (STEPS, 1, FEATURES)}


def given(name: str) -> NDArray[Any]:
    """What the network is run with: an image, a sequence, or the numbers of words."""
    rng = np.random.default_rng(3)
    shape = SHAPES.get(name, SHAPE)
    if name == "transformer":
        return rng.integers(0, WORDS, shape).astype(np.int32)
    return rng.standard_normal(shape).astype(np.float32)


def write_given(name: str, folder: str) -> None:
    given(name).tofile(f"{folder}/{name}.in")


def read_given(name: str, folder: str) -> NDArray[Any]:
    """From the file, as a program that deploys has it: NumPy's generators are slow to import."""
    kind = np.int32 if name == "transformer" else np.float32
    return np.fromfile(f"{folder}/{name}.in", kind).reshape(SHAPES.get(name, SHAPE))
