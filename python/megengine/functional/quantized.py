"""Products of quantised tensors, exact in integers (docs/numerics.md, "Quantised numbers"); inference only.

A result dtype of ``None`` (or qint32 at the scale of the product) gives the sum itself, plus bias; ``"float32"`` its
real value; any other quantised dtype that value, after the activation, rounded to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core._core import UserError, ops
from ..core.tensor.dtype import _builtin_quant_dtypes, create_quantized_dtype, get_axis, get_scale, is_quantize
from ..tensor import Tensor
from ..utils.tuple_function import _pair, _pair_nonzero
from .conv import _check_mode, conv_transpose2d_shape
from .elemwise import hswish, sigmoid

__all__ = ["batch_conv_bias_activation", "conv_bias_activation", "conv_transpose2d", "matmul", "product_dtype"]

Pair = int | Sequence[int]
_FUSED = {"identity": "none", "relu": "relu"}
_AFTER = {"sigmoid": sigmoid, "h_swish": hswish}


def _need_quantised(who: str, **tensors: Tensor) -> None:
    for name, t in tensors.items():
        if not is_quantize(t.dtype):
            raise UserError(f"{who}: {name} must be quantised; got {t.dtype}. Use astype, for example to qint8(0.1).")


def product_dtype(inp: Tensor, weight: Tensor, axis: int | None = None) -> np.dtype[Any]:
    """The qint32 of sums of products of two quantised tensors: its scale is the product of theirs, in float32.

    ``axis`` is where the channels of a weight quantised per channel lie in the tensor of that dtype.

    >>> from megengine.core.tensor.dtype import get_scale, qint8
    >>> x = mge.tensor([1.0]).astype(qint8(0.5))
    >>> get_scale(F.quantized.product_dtype(x, x))
    0.25
    """
    _need_quantised("product_dtype", inp=inp, weight=weight)
    a, b = (np.asarray(get_scale(t.dtype), dtype="float32") for t in (inp, weight))
    scale = a * b  # one rounding
    if scale.ndim == 0:
        return create_quantized_dtype(_builtin_quant_dtypes["qint32"], float(scale), None)
    return create_quantized_dtype(_builtin_quant_dtypes["qint32"], scale, None, 0 if axis is None else axis)


def _as_bias(bias: Tensor | None, inp: Tensor, weight: Tensor, axis: int) -> list[Tensor]:
    """A float bias as integers at the scale of the product."""
    if bias is None:
        return []
    return [bias if is_quantize(bias.dtype) else bias.astype(product_dtype(inp, weight, axis))]


def _result(who: str, op: Any, operands: list[Tensor], dtype: Any, nonlinear_mode: str, **attrs: Any) -> Tensor:
    mode = nonlinear_mode.lower()
    if mode not in _FUSED and mode not in _AFTER:
        known = ", ".join([*_FUSED, *_AFTER])
        raise ValueError(f"{who}: nonlinear_mode must be one of {known}; got {nonlinear_mode!r}.")
    kind = {} if dtype is None else {"type": dtype if is_quantize(dtype) else np.dtype(dtype)}
    if mode in _FUSED:
        y: Tensor = op(*operands, act=_FUSED[mode], **kind, **attrs)
        return y
    real = _AFTER[mode](op(*operands, type=np.dtype("float32"), **attrs))
    return real if dtype is None else real.astype(dtype)


def conv_bias_activation(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    dtype: Any = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    nonlinear_mode: str = "identity",
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """act(conv2d(inp, weight) + bias) on quantised tensors.

    Args:
        inp: (N, C, H, W), quantised to 8 bits or less.
        weight: (O, C, kh, kw), or (groups, O/groups, C/groups, kh, kw); per tensor or per output channel.
        bias: (1, O, 1, 1), qint32 at the scale of the product, or float32, which is rounded to it.
        dtype: of the result; None: qint32, the sum itself.
        stride: step of the window.
        padding: zeros on each side.
        dilation: distance of the weights.
        groups: input and output channels fall into so many independent groups.
        nonlinear_mode: ``"identity"``, ``"relu"``, ``"sigmoid"`` or ``"h_swish"``.
        conv_mode: only ``"cross_correlation"``.
        compute_mode: only ``"default"``.

    >>> from megengine.core.tensor.dtype import qint8
    >>> x = mge.tensor([[[[1.0, 2.0]]]]).astype(qint8(0.5))
    >>> F.quantized.conv_bias_activation(x, x, None, dtype=qint8(1.0)).numpy().tolist()
    [[[[5]]]]
    """
    who = "conv_bias_activation"
    _need_quantised(who, inp=inp, weight=weight)
    _check_mode(who, conv_mode, compute_mode)
    return _result(
        who,
        ops.qconv2d,
        [inp, weight, *_as_bias(bias, inp, weight, 1)],
        dtype,
        nonlinear_mode,
        stride=_pair_nonzero(stride, f"{who}: stride"),
        pad=_pair(padding, f"{who}: padding"),
        dilate=_pair_nonzero(dilation, f"{who}: dilation"),
        groups=groups,
    )


def batch_conv_bias_activation(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    dtype: Any = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    nonlinear_mode: str = "identity",
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """``conv_bias_activation`` with a weight per batch element: (N, O, I, kh, kw), or (N, groups, O/g, I/g, kh, kw).

    >>> from megengine.core.tensor.dtype import qint8
    >>> x = mge.tensor([[[[1.0, 2.0]]]]).astype(qint8(0.5))
    >>> F.quantized.batch_conv_bias_activation(x, x.reshape(1, 1, 1, 1, 2), None, dtype=qint8(1.0)).numpy().tolist()
    [[[[5]]]]
    """
    who = "batch_conv_bias_activation"
    _need_quantised(who, inp=inp, weight=weight)
    if get_axis(weight.dtype) is not None:
        raise NotImplementedError(f"{who}: the weight must have one scale; got {weight.dtype.metadata}.")
    rank = 5 if groups == 1 else 6
    if inp.ndim != 4 or weight.ndim != rank or weight.shape[0] != inp.shape[0]:
        raise UserError(
            f"{who}: needs inp (N, C, H, W) and a weight of {rank} dimensions with a matrix per batch element; got "
            f"{tuple(inp.shape)} and {tuple(weight.shape)}."
        )
    n, c, h, w = inp.shape
    out = weight.shape[-4] * groups
    biases = _as_bias(bias, inp, weight, 1)
    if biases:
        one = biases[0]
        biases = [ops.broadcast_to(one, shape=(n, out, 1, 1)).reshape(1, n * out, 1, 1)]
    y = conv_bias_activation(
        inp.reshape(1, n * c, h, w),
        weight.reshape(n * groups, *weight.shape[-4:]),
        biases[0] if biases else None,
        dtype,
        stride,
        padding,
        dilation,
        n * groups,
        nonlinear_mode,
        conv_mode,
        compute_mode,
    )
    return y.reshape(n, out, *y.shape[2:])


def conv_transpose2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    dtype: Any = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
    nonlinear_mode: str = "identity",
) -> Tensor:
    """The transposed convolution of quantised tensors; sizes as ``F.conv_transpose2d``, the rest as the convolution.

    >>> from megengine.core.tensor.dtype import qint8
    >>> x = mge.tensor([[[[1.0, 2.0]]]]).astype(qint8(0.5))
    >>> F.quantized.conv_transpose2d(x, x, dtype=qint8(1.0)).numpy().tolist()
    [[[[1, 4, 4]]]]
    """
    who = "conv_transpose2d"
    _need_quantised(who, inp=inp, weight=weight)
    _check_mode(who, conv_mode, compute_mode)
    sizes = conv_transpose2d_shape(inp, weight, stride, padding, output_padding, dilation, groups)
    return _result(who, ops.qconv2d_dx, [inp, weight, *_as_bias(bias, inp, weight, 1)], dtype, nonlinear_mode, **sizes)


def matmul(
    inp1: Tensor,
    inp2: Tensor,
    bias: Tensor | None = None,
    dtype: Any = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    nonlinear_mode: str = "identity",
) -> Tensor:
    """act(inp1 @ inp2 + bias) on quantised tensors of two or more dimensions; those before the last two broadcast.

    Args:
        inp1: (.., M, K), quantised to 8 bits or less.
        inp2: (.., K, N).
        bias: (N,) or (M, 1), qint32 at the scale of the product, or float32, which is rounded to it.
        dtype: of the result; None: qint32, the sum itself.
        transpose_a: ``inp1`` is (.., K, M).
        transpose_b: ``inp2`` is (.., N, K), as the weight of a linear layer.
        nonlinear_mode: ``"identity"``, ``"relu"``, ``"sigmoid"`` or ``"h_swish"``.

    >>> from megengine.core.tensor.dtype import qint8
    >>> x = mge.tensor([[1.0, 2.0]]).astype(qint8(0.5))
    >>> F.quantized.matmul(x, x, transpose_b=True).numpy().tolist()
    [[20]]
    """
    who = "matmul"
    _need_quantised(who, inp1=inp1, inp2=inp2)
    operands = [inp1, inp2, *_as_bias(bias, inp1, inp2, 0)]
    return _result(who, ops.qmatmul, operands, dtype, nonlinear_mode, ta=transpose_a, tb=transpose_b)
