"""Networks of the inference table, written once: a net is a function of a builder, which has the ops. ``lite_mge.py``
builds them of our ops, ``lite_onnx.py`` as ONNX graphs; weights are drawn here, so both hold the same ones.

    NETS["resnet18"](builder, builder.input((1, 3, 224, 224)))
"""

from __future__ import annotations

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


class Maker:
    """A builder with weights: what networks are written with."""

    def __init__(self, b: Builder, seed: int = 7):
        self.b = b
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        return (scale * self.rng.standard_normal(shape)).astype(np.float32)

    def conv(self, x: Any, i: int, o: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Any:
        w = self.normal(o, i // groups, kernel, kernel, scale=(2.0 / (i // groups * kernel**2)) ** 0.5)
        return self.b.conv(x, w, self.normal(o, scale=0.1) if bias else None, stride, kernel // 2, groups)

    def conv_bn(self, x: Any, i: int, o: int, kernel: int, stride: int = 1, groups: int = 1, act: str = "") -> Any:
        x = self.conv(x, i, o, kernel, stride, groups)
        # Near 1 and 0, as trained ones are: values stay of one size through fifty layers.
        scale, var = (self.rng.uniform(0.8, 1.2, o).astype(np.float32) for _ in range(2))
        x = self.b.batch_norm(x, scale, self.normal(o, scale=0.1), self.normal(o, scale=0.1), var)
        return self.b.act(x, act) if act else x

    def linear(self, x: Any, i: int, o: int) -> Any:
        return self.b.linear(x, self.normal(o, i, scale=i**-0.5), self.normal(o, scale=0.1))


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


NETS: dict[str, Callable[[Maker, Any], Any]] = {
    "resnet18": resnet((2, 2, 2, 2), False),
    "resnet50": resnet((3, 4, 6, 3), True),
    "mobilenet_v2": mobilenet_v2,
    "shufflenet_v2": shufflenet_v2,
    "vgg16": vgg16,
    "empty": lambda m, x: m.b.act(x, "relu"),
}


def shape_of(name: str) -> tuple[int, ...]:
    return (1,) if name == "empty" else SHAPE


def image(name: str) -> Array:
    return np.random.default_rng(3).standard_normal(shape_of(name)).astype(np.float32)
