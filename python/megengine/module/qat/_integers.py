"""How a QAT layer in evaluation mode gets the very values that the integer layer will give.

In training, a product of simulated values is a float product, whose last bits depend on the order of a sum. The integer
layer sums integers, without error, so the two may round to different sides of a half. In evaluation mode the QAT layer
therefore sums integers as well (docs/numerics.md, "Quantised numbers"): x / scale are whole numbers, which a quantised
dtype of scale 1 holds. No value is read on the host, so a trace of it goes on with other scales.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...autodiff import Function
from ...core.tensor.dtype import qint8
from ...functional import clip, concat, round
from ...tensor import Tensor

#: A product of float tensors, or of quantised ones whose result is float32: (input, weight, bias) to result.
Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class IntegerProduct:
    """``run`` sums over ``x_axis`` of the input and ``w_axis`` of the weight, in each of ``groups`` apart. One number
    per output channel has the shape ``channels`` beside the result."""

    run: Product
    channels: tuple[int, ...]
    x_axis: int
    w_axis: int
    groups: int = 1

    def of_parts(self, xs: list[Tensor], ws: list[Tensor], bias: Tensor | None) -> Tensor:
        """sum(x) times sum(w) as one product, whose sums are as much longer."""
        pairs = [(x, w) for x in xs for w in ws]
        x = _joined([x for x, _ in pairs], self.x_axis, self.groups)
        w = _joined([w for _, w in pairs], self.w_axis)
        return self.run(x.astype(_WHOLE), w.astype(_WHOLE), bias)


_WHOLE = qint8(1.0)


def _joined(parts: list[Tensor], axis: int, groups: int = 1) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    if groups == 1:
        return concat(parts, axis)
    n, c, *rest = parts[0].shape
    split = [p.reshape(n, groups, c // groups, *rest) for p in parts]
    return concat(split, axis + 1).reshape(n, c * len(parts), *rest)


def _parts(x: Tensor, scale: Tensor) -> list[Tensor] | None:
    """The whole numbers that a simulated tensor stands for, as a sum of such as 8 bits hold; None: there are none."""
    meta = x.qparams.dtype_meta
    if not x._simulated or meta is None or meta.qmax - meta.qmin > 255:
        return None
    whole = round(x.detach() / scale)
    if meta.qmin >= -128 and meta.qmax <= 127 and x.qparams.zero_point is None:
        return [whole]
    most = clip(whole, -128.0, 127.0)  # q - zero_point takes 9 bits
    rest = whole - most
    more = clip(rest, -128.0, 127.0)
    return [most, more, rest - more]


def _scale(x: Tensor) -> Tensor:
    scale: Any = x.qparams.scale
    return scale.detach() if isinstance(scale, Tensor) else Tensor(scale, dtype="float32")


def exact_product(inp: Tensor, weight: Tensor, bias: Tensor | None, product: IntegerProduct) -> Tensor | None:
    """The real value of the product over integers, plus the bias rounded to them; None where there are none."""
    if inp.qparams.scale is None or weight.qparams.scale is None:
        return None
    x_scale, w_scale = _scale(inp), _scale(weight)
    xs, ws = _parts(inp, x_scale), _parts(weight, w_scale)
    if xs is None or ws is None:
        return None
    scale = x_scale * w_scale
    if scale.size > 1:
        scale = scale.reshape(product.channels)
    whole = None if bias is None else bias.detach().reshape(product.channels) / scale
    return product.of_parts(xs, ws, whole) * scale


class _ValueOf(Function):
    """The value of the second, with the gradient going to the first."""

    def forward(self, simulated: Tensor, exact: Tensor) -> Tensor:
        return exact

    def backward(self, dy: Tensor) -> tuple[Tensor, None]:
        return dy, None


def with_value(simulated: Tensor, exact: Tensor) -> Tensor:
    """``exact``, with the gradient of ``simulated``."""
    result: Tensor = _ValueOf()(simulated, exact)
    return result
