"""Networks that the tests of traced_module trace; ``tests/data/traced_module/make.py`` traces them with MegEngine 1.13.

Each entry of ``NETS`` makes a module and its arguments. Only what both packages have is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.module.qat as QAT
from megengine.core.tensor.dtype import qint8
from megengine.quantization import ema_fakequant_qconfig, quantize_qat


def _array(*shape: int, seed: int = 0) -> Any:
    return mge.tensor(np.random.RandomState(seed).uniform(-1, 1, shape).astype("float32"))


class ConvBlock(M.Module):
    def __init__(self, cin: int, cout: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = M.Conv2d(cin, cout, 3, stride, padding=1)
        self.bn = M.BatchNorm2d(cout)
        self.gain = mge.Parameter(np.ones(1, "float32") * 1.5)
        self.unused = mge.tensor(np.zeros(3, "float32"))

    def forward(self, x: Any, slope: float = 0.1) -> Any:
        return F.leaky_relu(self.bn(self.conv(x)) * self.gain, slope)


class Nested(M.Module):
    """Lists, dicts, a module used twice, defaults, keyword arguments, shapes and assignment to a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBlock(3, 4)
        self.blocks = [ConvBlock(4, 4), ConvBlock(4, 4)]
        self.heads = {"a": M.Conv2d(4, 2, 1), "b": M.Conv2d(4, 2, 1)}
        self.pool = M.AvgPool2d(2, 2)
        self.seq = M.Sequential(M.Conv2d(4, 4, 3), M.ReLU())
        self.fc = M.Linear(4, 3)
        self.times = 2

    def forward(self, x: Any) -> Any:
        y = self.stem(x)
        for block in self.blocks:
            y = y + block(y, slope=0.2)
        y = self.stem.bn(self.pool(self.pool(y)))
        z = self.seq(y)
        n = z.shape[0]
        flat = F.flatten(F.avg_pool2d(z, 2), 1)
        flat = flat.reshape(n, 4, -1)
        flat[:, 0] = 0.5
        flat[:1, 1] += 1
        t = mge.tensor(np.arange(4).astype("float32"))
        out = self.fc(flat.sum(axis=2, keepdims=False) * self.times - t)
        return {"logits": out, "maps": [self.heads["a"](y), self.heads["b"](y)], "pair": (F.split(z, 2, axis=1), -z)}


class Arguments(M.Module):
    """Containers, further positional and keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = M.Linear(4, 4)

    def forward(self, xs: Any, named: Any, *rest: Any, scale: Any = None, **more: Any) -> Any:
        y = xs[0] + xs[1][0] * named["p"] - named["q"]
        for r in rest:
            y = y + r
        if scale is not None:
            y = y * scale
        for key in sorted(more):
            y = y - more[key]
        return self.fc(y), (y, [y.mean()])


class BasicBlock(M.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = M.BatchNorm2d(cout)
        self.conv2 = M.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = M.BatchNorm2d(cout)
        same = stride == 1 and cin == cout
        fit = [M.Conv2d(cin, cout, 1, stride, bias=False), M.BatchNorm2d(cout)]
        self.down = M.Identity() if same else M.Sequential(*fit)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.down(x)
        return F.relu(y)


class ResNet(M.Module):
    def __init__(self, width: int = 2, classes: int = 5) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = M.BatchNorm2d(width)
        self.maxpool = M.MaxPool2d(3, 2, 1)
        for i in range(4):
            cin = width if i == 0 else width * 2 ** (i - 1)
            cout = width * 2**i
            stride = 1 if i == 0 else 2
            setattr(self, f"layer{i + 1}", M.Sequential(BasicBlock(cin, cout, stride), BasicBlock(cout, cout, 1)))
        self.fc = M.Linear(width * 8, classes)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for i in range(4):
            x = getattr(self, f"layer{i + 1}")(x)
        x = F.avg_pool2d(x, x.shape[2])
        return self.fc(F.flatten(x, 1))


class Attention(M.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = M.Linear(dim, 3 * dim)
        self.out = M.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        qkv = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        score = F.matmul(q, k.transpose(0, 1, 3, 2)) / (float(d // self.heads) ** 0.5)
        y = F.matmul(F.softmax(score, axis=-1), v)
        return self.out(y.transpose(0, 2, 1, 3).reshape(b, t, d))


class Layer(M.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1 = M.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.norm2 = M.LayerNorm(dim)
        self.mlp = M.Sequential(M.Linear(dim, 2 * dim), M.GELU(), M.Linear(2 * dim, dim))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(M.Module):
    def __init__(self, dim: int = 8, heads: int = 2, vocab: int = 11, length: int = 5) -> None:
        super().__init__()
        self.embed = M.Embedding(vocab, dim)
        self.position = mge.Parameter(np.linspace(-1, 1, length * dim).reshape(1, length, dim).astype("float32"))
        self.layers = [Layer(dim, heads) for _ in range(2)]
        self.norm = M.LayerNorm(dim)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens) + self.position[:, : tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return F.matmul(x, self.embed.weight.transpose(1, 0))


class Detector(M.Module):
    """A feature pyramid with heads shared by its levels, anchors of the size of the maps, and a dict of results."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = M.Sequential(ConvBlock(3, 4, 2), ConvBlock(4, 8, 2))
        self.lateral = [M.Conv2d(4, 4, 1), M.Conv2d(8, 4, 1)]
        self.head = M.Sequential(M.Conv2d(4, 4, 3, padding=1), M.ReLU(), M.Conv2d(4, 6, 1))
        self.steps = (2, 4)

    def anchors(self, x: Any, stride: int) -> Any:
        h, w = x.shape[2], x.shape[3]
        ys = (F.arange(0, h) + 0.5) * stride
        xs = (F.arange(0, w) + 0.5) * stride
        yy = F.broadcast_to(ys.reshape(-1, 1), (h, w))
        xx = F.broadcast_to(xs.reshape(1, -1), (h, w))
        return F.stack([xx, yy], axis=-1).reshape(-1, 2)

    def forward(self, image: Any, info: Any) -> Any:
        c2 = self.backbone[0](image)
        c3 = self.backbone[1](c2)
        p3 = self.lateral[1](c3)
        p2 = self.lateral[0](c2) + F.nn.interpolate(p3, scale_factor=2, mode="nearest")
        logits, boxes = [], []
        for level, stride in zip([p2, p3], self.steps):
            raw = self.head(level).transpose(0, 2, 3, 1)
            raw = raw.reshape(raw.shape[0], -1, 6)
            logits.append(raw[..., :2])
            centre = self.anchors(level, stride) + raw[..., 2:4]
            size = F.exp(F.clip(raw[..., 4:], -2, 2)) * stride
            boxes.append(F.concat([centre - size / 2, centre + size / 2], axis=-1) * info["scale"])
        scores = F.sigmoid(F.concat(logits, axis=1)).max(axis=-1)
        top, index = F.topk(scores, 6, descending=True)
        boxes = F.concat(boxes, axis=1)
        index = F.broadcast_to(F.expand_dims(index, -1), (1, 6, 4))
        return {"scores": top, "boxes": F.gather(boxes, 1, index), "maps": [p2, p3]}


class Zoo(M.Module):
    """One call of many functions, with the arguments whose meaning changed between versions."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = mge.tensor(np.zeros((1, 4, 1, 1), "float32"))
        self.var = mge.tensor(np.ones((1, 4, 1, 1), "float32"))
        self.kernel = mge.Parameter(np.linspace(-1, 1, 4 * 3 * 3 * 3).reshape(4, 3, 3, 3).astype("float32"))

    def forward(self, x: Any) -> Any:
        y = F.nn.pad(x, ((0, 0), (0, 0), (1, 1), (2, 0)), mode="reflect")
        y = F.batch_norm(y, self.mean, self.var, training=False)
        y = F.conv_transpose2d(y, self.kernel, stride=2)
        z = F.zeros((2, 3)) + F.ones((3,)) + F.full((2, 1), 0.5) + F.linspace(0.0, 1.0, 3) + F.arange(3)
        s = F.square(y) + F.maximum(y, 0.0) - F.minimum(y, 1)
        w = F.where(s > 0.5, s, F.zeros_like(s))
        m = ((w < 0.7).astype("float32") * 2).sum() / w.size
        count = F.logical_not(w >= 0).astype("int32").sum()
        return s.max(axis=(2, 3)), z, count, m, 1 - w.mean(axis=1, keepdims=True) ** 2


class MyConv(M.Conv2d):
    def forward(self, inp: Any) -> Any:
        return super().forward(inp) * 1.0


class Fusable(M.Module):
    """What the passes of ``optimize`` rewrite."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(3, 4, 3)
        self.bn1 = M.BatchNorm2d(4)
        self.conv2 = MyConv(4, 4, 3)
        self.bn2 = M.BatchNorm2d(4)
        self.up = M.ConvTranspose2d(4, 4, 2, 2)
        self.bn3 = M.BatchNorm2d(4)
        self.scale = mge.Parameter(np.linspace(0.5, 2, 4).reshape(1, 4, 1, 1).astype("float32"))

    def forward(self, x: Any) -> Any:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        y = self.bn3(self.up(x))
        z = (2 * y + 3) * 4 + 5
        return F.relu(z) * self.scale


class Custom(M.Conv2d):
    """A layer with a QAT module of its own."""


class CustomQAT(QAT.Conv2d):
    @classmethod
    def from_float_module(cls, float_module: Any) -> Any:
        new = cls(float_module.in_channels, float_module.out_channels, float_module.kernel_size)
        new.weight, new.bias = float_module.weight, float_module.bias
        return new

    def forward(self, x: Any) -> Any:
        weight = self.apply_quant_weight(self.weight)
        bias = self.apply_quant_bias(self.bias, x, weight)
        return self.apply_quant_activation(F.relu(self.calc_conv(x, weight, bias)))


class Quantizable(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant = M.QuantStub()
        self.conv = M.ConvBnRelu2d(3, 4, 3)
        self.side = M.Conv2d(4, 4, 1)
        self.add = M.Elemwise("add")
        self.custom = Custom(4, 4, 1)
        self.dequant = M.DequantStub()
        self.fc = M.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        x = self.conv(self.quant(x))
        x = self.custom(self.add(x, self.side(x)))
        return self.fc(F.mean(self.dequant(x), axis=(2, 3)))


def simulated(qconfig: Any = ema_fakequant_qconfig) -> Any:
    """A network in quantisation-aware training, after one look at data."""
    net = quantize_qat(Quantizable(), qconfig=qconfig, mapping={Custom: CustomQAT})
    x = _array(2, 3, 8, 8)
    net(x)
    return net, (x,), {}


class Kinds(M.Module):
    """Arguments that are classes and dtypes."""

    def forward(self, x: Any) -> Any:
        y = mge.Tensor(x) * mge.Parameter(x) + x.astype(x.dtype)
        half = y.astype(np.dtype("float16")).astype(np.float32)
        return y, half, y.astype(qint8(0.1)).astype("float32")


QUANTIZED: dict[str, Any] = {"qat": simulated}

NETS: dict[str, Any] = {
    "nested": lambda: (Nested(), (_array(2, 3, 16, 16),), {}),
    "arguments": lambda: (
        Arguments(),
        (
            [_array(2, 4), (_array(2, 4, seed=1), _array(2, 4, seed=2))],
            {"p": _array(2, 4, seed=3), "q": _array(2, 4, seed=4)},
            _array(2, 4, seed=5),
        ),
        {"scale": _array(2, 4, seed=6), "z": _array(2, 4, seed=7)},
    ),
    "resnet": lambda: (ResNet(), (_array(2, 3, 32, 32),), {}),
    "transformer": lambda: (Transformer(), (mge.tensor(np.arange(10).reshape(2, 5) % 11, dtype="int32"),), {}),
    "detector": lambda: (Detector(), (_array(1, 3, 16, 24), {"scale": mge.tensor(2.0)}), {}),
    "zoo": lambda: (Zoo(), (_array(2, 4, 5, 5),), {}),
    "kinds": lambda: (Kinds(), (_array(2, 3),), {}),
    "fusable": lambda: (Fusable(), (_array(2, 3, 10, 10),), {}),
}
