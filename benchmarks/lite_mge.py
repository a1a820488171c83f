"""Our half of ``lite.py``: dumps a network, and runs a file through Lite's Python package alone.

python benchmarks/lite_mge.py dump resnet18 resnet18.mge [enable_winograd4 ...]
python benchmarks/lite_mge.py run resnet18 resnet18.mge THREADS SECONDS
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from lite_nets import NETS, Array, Maker, given, read_given, write_given
from lite_run import report


class Ours:
    """Builds a network of our ops inside a trace."""

    def __init__(self) -> None:
        import megengine
        import megengine.functional as functional
        import megengine.module as module

        self.mge, self.F, self.M = megengine, functional, module

    def constant(self, value: Array) -> Any:
        return self.mge.Parameter(value)

    def channels(self, value: Array) -> Any:
        return self.constant(value.reshape(1, -1, 1, 1))

    def conv(self, x: Any, w: Array, bias: Array | None, stride: int, pad: int, groups: int) -> Any:
        if groups > 1:
            w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        b = None if bias is None else self.channels(bias)
        return self.F.conv2d(x, self.constant(w), b, stride=stride, padding=pad, groups=groups)

    def batch_norm(self, x: Any, scale: Array, shift: Array, mean: Array, var: Array) -> Any:
        values = [self.channels(v) for v in (mean, var, scale, shift)]
        return self.F.nn.batch_norm(x, *values, training=False)

    def act(self, x: Any, kind: str) -> Any:
        return getattr(self.F, kind)(x)

    def max_pool(self, x: Any, kernel: int, stride: int, pad: int) -> Any:
        return self.F.max_pool2d(x, kernel, stride, pad)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def concat(self, x: Any, y: Any) -> Any:
        return self.F.concat([x, y], axis=1)

    def halves(self, x: Any, channels: int) -> tuple[Any, Any]:
        left, right = self.F.split(x, 2, axis=1)
        return left, right

    def shuffle(self, x: Any, channels: int, size: int) -> Any:
        x = x.reshape(1, 2, channels // 2, size, size).transpose(0, 2, 1, 3, 4)
        return x.reshape(1, channels, size, size)

    def mean(self, x: Any) -> Any:
        return self.F.mean(x, axis=(2, 3))

    def flatten(self, x: Any) -> Any:
        return self.F.flatten(x, 1)

    def linear(self, x: Any, w: Array, bias: Array) -> Any:
        return self.F.linear(x, self.constant(w), self.constant(bias))

    def embed(self, x: Any, table: Array, positions: Array) -> Any:
        return self.F.embedding(x, self.constant(table)) + self.constant(positions)

    def layer_norm(self, x: Any, scale: Array, shift: Array) -> Any:
        return self.F.layer_norm(x, (len(scale),), True, self.constant(scale), self.constant(shift), 1e-5)

    def attention(self, qkv: Any, heads: int, mask: Array) -> Any:
        b, s, wide = qkv.shape
        d = wide // 3
        q, k, v = qkv.reshape(b, s, 3, heads, d // heads).transpose(2, 0, 3, 1, 4)
        scores = self.F.matmul(q, k, transpose_b=True) * (d // heads) ** -0.5 + self.constant(mask)
        return self.F.matmul(self.F.softmax(scores, axis=-1), v).transpose(0, 2, 1, 3).reshape(b, s, d)

    def lstm(self, x: Any, w: Array, state_w: Array, bias: Array, state_bias: Array) -> Any:
        layer = self.M.LSTM(w.shape[1], state_w.shape[1])
        flat = np.concatenate([v.reshape(-1) for v in (w, state_w, bias, state_bias)])
        layer._flatten_weights = self.constant(flat.reshape(len(w), -1))
        return layer(x)[0]

    def last(self, x: Any) -> Any:
        return x[-1]


def dump(name: str, path: str, options: list[str]) -> None:
    import megengine as mge
    from megengine.jit import trace

    weights: list[Any] = []

    class Once(Ours):  # parameters are made in the first call of the body and found again in the next
        def constant(self, value: Array) -> Any:
            weights.append(super().constant(value))
            return weights[-1]

    class Again(Ours):
        def __init__(self) -> None:
            super().__init__()
            self.at = iter(weights)

        def constant(self, value: Array) -> Any:
            return next(self.at)

    x = mge.Tensor(given(name))
    NETS[name](Maker(Once()), x)

    @trace(symbolic=True, capture_as_const=True)
    def net(x: Any) -> Any:
        return NETS[name](Maker(Again()), x)

    net(x)
    write_given(name, os.path.dirname(path))
    net.dump(path, arg_names=["x"], output_names=["y"], **dict.fromkeys(options, True))


def run(name: str, path: str, threads: int, seconds: float) -> None:
    from megenginelite import LiteNetwork

    net = LiteNetwork()
    net.threads_number = threads
    net.load(path)
    x = read_given(name, os.path.dirname(path))
    out = net.get_io_tensor("y")
    net.get_io_tensor("x").set_data_by_copy(x)

    def forward() -> None:
        net.forward()
        net.wait()

    report(forward, lambda: out.to_numpy(), seconds)


if __name__ == "__main__":
    if sys.argv[1] == "dump":
        dump(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        run(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
