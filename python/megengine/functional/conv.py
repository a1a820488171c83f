"""Convolution, pooling, windows and padding. Images are NCHW."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import _amp
from ..core._core import UserError, ops
from ..core.tensor.indexing import _const, _filled
from ..core.tensor.utils import make_shape_tuple
from ..tensor import Tensor
from ..utils.tuple_function import _pair, _pair_nonzero
from .tensor import stack

Pair = int | Sequence[int]


def _check_mode(who: str, conv_mode: str, compute_mode: str = "default") -> None:
    if conv_mode.lower() != "cross_correlation":
        raise NotImplementedError(f"{who}: only conv_mode='cross_correlation' exists; got {conv_mode!r}.")
    if compute_mode.lower() not in ("default", "float32"):
        raise ValueError(f"{who}: compute_mode must be default or float32; got {compute_mode!r}.")


def conv2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """2-D convolution (cross-correlation) with zero padding.

    Args:
        inp: (N, C, H, W).
        weight: (O, C, kh, kw), or (groups, O/groups, C/groups, kh, kw).
        bias: (1, O, 1, 1).
        stride: step of the window.
        padding: zeros on each side.
        dilation: distance of the weights.
        groups: input and output channels fall into so many independent groups.
        conv_mode: only ``"cross_correlation"``.
        compute_mode: ``"default"`` or ``"float32"``.

    >>> F.conv2d(F.ones((1, 1, 3, 3)), F.ones((1, 1, 3, 3))).item()
    9.0
    """
    if conv_mode != "cross_correlation" or compute_mode != "default":
        _check_mode("conv2d", conv_mode, compute_mode)
    return ops.conv2d(
        inp,
        weight,
        bias,
        stride=stride if type(stride) is tuple else _pair_nonzero(stride),
        pad=padding if type(padding) is tuple else _pair(padding),
        dilate=dilation if type(dilation) is tuple else _pair_nonzero(dilation),
        groups=groups,
    )


def conv1d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """1-D convolution of (N, C, L) with a weight (O, C, k), or (groups, O/groups, C/groups, k); bias (1, O, 1).

    >>> F.conv1d(F.ones((1, 1, 5)), F.ones((1, 1, 3))).tolist()
    [[[3.0, 3.0, 3.0]]]
    """
    _check_mode("conv1d", conv_mode, compute_mode)
    if inp.ndim != 3:
        raise UserError(f"conv1d: the input needs 3 dimensions (N, C, L); got {inp.shape}.")
    (s,), (p,), (d,) = (make_shape_tuple(v) for v in (stride, padding, dilation))
    y = ops.conv2d(
        ops.expand_dims(inp, axes=(-1,)),
        ops.expand_dims(weight, axes=(-1,)),
        None if bias is None else ops.expand_dims(bias, axes=(-1,)),
        stride=(s, 1),
        pad=(p, 0),
        dilate=(d, 1),
        groups=groups,
    )
    return ops.squeeze(y, axes=(-1,))


def conv3d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
) -> Tensor:
    """3-D convolution."""
    raise NotImplementedError("conv3d: arrives with the 3-D convolution op.")


def conv_transpose2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """2-D transposed convolution, the adjoint of ``conv2d``.

    The output height is ``(H - 1) * stride - 2 * padding + dilation * (kh - 1) + 1 + output_padding``.

    Args:
        inp: (N, I, H, W).
        weight: (I, O, kh, kw), or (groups, I/groups, O/groups, kh, kw).
        bias: (1, O, 1, 1).
        stride: distance of input elements in the output.
        padding: taken off each side of the output.
        output_padding: added to the far side; below the stride.
        dilation: distance of the weights.
        groups: number of independent groups.
        conv_mode: only ``"cross_correlation"``.
        compute_mode: ``"default"`` or ``"float32"``.

    >>> F.conv_transpose2d(F.ones((1, 1, 2, 2)), F.ones((1, 1, 2, 2)), stride=2).shape
    (1, 1, 4, 4)
    """
    _check_mode("conv_transpose2d", conv_mode, compute_mode)
    s, p, d, extra = _pair_nonzero(stride), _pair(padding), _pair_nonzero(dilation), _pair(output_padding)
    if inp.ndim != 4:
        raise UserError(f"conv_transpose2d: the input needs 4 dimensions (N, C, H, W); got {inp.shape}.")
    if weight.ndim != (4 if groups == 1 else 5):
        raise UserError(f"conv_transpose2d: the weight needs {4 if groups == 1 else 5} dimensions; got {weight.shape}.")
    assert all(a < b for a, b in zip(extra, s)), f"conv_transpose2d: output_padding {extra} must be below stride {s}."
    channels = weight.shape[-3] * groups
    size = tuple(
        (n - 1) * s[i] - 2 * p[i] + d[i] * (weight.shape[-2 + i] - 1) + 1 + extra[i]
        for i, n in enumerate(inp.shape[2:])
    )
    x_shape = (inp.shape[0], channels, *size)
    y = ops.conv2d_dx(inp, weight, stride=s, pad=p, dilate=d, groups=groups, x_shape=x_shape)
    if bias is None:
        return y
    return y + (bias.astype(y.dtype) if _amp.enabled else bias)


def conv_transpose3d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """3-D transposed convolution."""
    raise NotImplementedError("conv_transpose3d: arrives with the 3-D convolution op.")


def deformable_conv2d(
    inp: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Convolution at learned positions, with a learned weight for each."""
    raise NotImplementedError("deformable_conv2d: arrives with the deformable convolution op.")


def local_conv2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    conv_mode: str = "cross_correlation",
) -> Tensor:
    """Convolution with a weight of its own at every position."""
    raise NotImplementedError("local_conv2d: arrives with the local convolution op.")


def region_restricted_conv(
    inp: Tensor,
    weight: Tensor,
    rin: Tensor,
    rout: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Convolution that only joins positions with equal region numbers."""
    raise NotImplementedError("region_restricted_conv: arrives with the region-restricted convolution op.")


def sliding_window(inp: Tensor, kernel_size: Pair, padding: Pair = 0, stride: Pair = 1, dilation: Pair = 1) -> Tensor:
    """The windows that a convolution would see: (N, C, OH, OW, kh, kw).

    >>> F.sliding_window(F.ones((1, 2, 4, 4)), 3).shape
    (1, 2, 2, 2, 3, 3)
    """
    (kh, kw), p, s, d = _pair_nonzero(kernel_size), _pair(padding), _pair_nonzero(stride), _pair_nonzero(dilation)
    if inp.ndim != 4:
        raise UserError(f"sliding_window: the input needs 4 dimensions (N, C, H, W); got {inp.shape}.")
    x = pad(inp, ((0, 0), (0, 0), (p[0], p[0]), (p[1], p[1]))) if any(p) else inp
    oh, ow = ((x.shape[2 + i] - d[i] * (k - 1) - 1) // s[i] + 1 for i, k in enumerate((kh, kw)))
    if oh <= 0 or ow <= 0:
        raise UserError(f"sliding_window: a window of {(kh, kw)} with dilation {d} does not fit into {x.shape}.")
    views = []
    for i in range(kh):
        for j in range(kw):
            top, left = i * d[0], j * d[1]
            rows, cols = slice(top, top + (oh - 1) * s[0] + 1, s[0]), slice(left, left + (ow - 1) * s[1] + 1, s[1])
            views.append(x[:, :, rows, cols])
    return stack(views, axis=-1).reshape(*x.shape[:2], oh, ow, kh, kw)


def sliding_window_transpose(
    inp: Tensor, output_size: Pair, kernel_size: Pair, padding: Pair = 0, stride: Pair = 1, dilation: Pair = 1
) -> Tensor:
    """Add windows (N, C, OH, OW, kh, kw) up into images, the adjoint of ``sliding_window``.

    >>> F.sliding_window_transpose(F.ones((1, 1, 2, 2, 2, 2)), (3, 3), 2).tolist()
    [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
    """
    (kh, kw), p, s, d = _pair_nonzero(kernel_size), _pair(padding), _pair_nonzero(stride), _pair_nonzero(dilation)
    height, width = _pair_nonzero(output_size)
    full_h, full_w = height + 2 * p[0], width + 2 * p[1]
    n, c, oh, ow = inp.shape[:4]
    want = ((full_h - d[0] * (kh - 1) - 1) // s[0] + 1, (full_w - d[1] * (kw - 1) - 1) // s[1] + 1, kh, kw)
    assert inp.ndim == 6 and inp.shape[2:] == want, (
        f"sliding_window_transpose: windows of shape (N, C, {', '.join(map(str, want))}) are needed; got {inp.shape}."
    )
    y = _filled((n, c, full_h, full_w), 0.0, inp.dtype, inp)
    for i in range(kh):
        for j in range(kw):
            top, left = i * d[0], j * d[1]
            key = (
                slice(None),
                slice(None),
                slice(top, top + (oh - 1) * s[0] + 1, s[0]),
                slice(left, left + (ow - 1) * s[1] + 1, s[1]),
            )
            y[key] = y[key] + inp[:, :, :, :, i, j]
    return y[:, :, p[0] : p[0] + height, p[1] : p[1] + width]


def pad(src: Tensor, pad_width: Sequence[Sequence[int]], mode: str = "constant", constant_value: float = 0.0) -> Tensor:
    """Extend a tensor on both sides of its axes.

    Args:
        src: the tensor.
        pad_width: (before, after) for each axis from the first; later axes stay as they are.
        mode: ``"constant"``, ``"edge"`` or ``"replicate"`` (repeat the last element), ``"reflect"`` (mirror at it).
        constant_value: for mode ``"constant"``.

    >>> F.pad(mge.tensor([1, 2, 3]), ((1, 2),), "reflect").tolist()
    [2, 1, 2, 3, 2, 1]
    """
    widths = [make_shape_tuple(w) for w in pad_width]
    if len(widths) > src.ndim or any(len(w) != 2 or min(w) < 0 for w in widths):
        raise ValueError(f"pad: pad_width needs (before, after) for up to {src.ndim} axes; got {pad_width}.")
    how = mode.lower()
    if how == "constant":
        if not any(any(w) for w in widths):
            return ops.copy(src)
        shape = list(src.shape)
        starts = [0] * src.ndim
        for i, (before, after) in enumerate(widths):
            starts[i], shape[i] = before, before + src.shape[i] + after
        base = _filled(tuple(shape), float(constant_value), src.dtype, src)
        stops = tuple(a + n for a, n in zip(starts, src.shape))
        axes = tuple(range(src.ndim))
        return ops.set_slice(base, src, axes=axes, starts=tuple(starts), stops=stops, steps=(1,) * src.ndim)
    if how not in ("edge", "replicate", "reflect"):
        raise ValueError(f"pad: mode must be constant, edge, replicate or reflect; got {mode!r}.")
    x = src
    for i, w in enumerate(widths):
        if any(w):
            source = np.pad(np.arange(src.shape[i]), w, mode="reflect" if how == "reflect" else "edge")
            x = ops.take(x, _const(source, src), axis=i)
    return ops.copy(x) if x is src else x


# ---- pooling


def max_pool2d(inp: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> Tensor:
    """The largest element of each window; the stride is the window size unless given.

    >>> F.max_pool2d(F.arange(16).reshape(1, 1, 4, 4), 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    kernel = _pair_nonzero(kernel_size)
    return ops.max_pool2d(
        inp, kernel=kernel, stride=kernel if stride is None else _pair_nonzero(stride), pad=_pair(padding)
    )


def avg_pool2d(
    inp: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    mode: str = "average_count_exclude_padding",
) -> Tensor:
    """The mean of each window; mode ``"average"`` counts padding as zeros, the default leaves it out.

    >>> F.avg_pool2d(F.arange(16).reshape(1, 1, 4, 4), 2).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    if mode not in ("average", "average_count_exclude_padding"):
        raise ValueError(f"avg_pool2d: mode must be average or average_count_exclude_padding; got {mode!r}.")
    kernel = _pair_nonzero(kernel_size)
    return ops.avg_pool2d(
        inp,
        kernel=kernel,
        stride=kernel if stride is None else _pair_nonzero(stride),
        pad=_pair(padding),
        include_pad=mode == "average",
    )


def _adaptive(inp: Tensor, oshp: Pair | Tensor, who: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Window and stride that give the output shape."""
    sizes = make_shape_tuple(oshp)
    oh, ow = sizes * 2 if len(sizes) == 1 else sizes
    if inp.ndim != 4:
        raise UserError(f"{who}: the input needs 4 dimensions (N, C, H, W); got {inp.shape}.")
    h, w = inp.shape[2:]
    if not (0 < oh <= h and 0 < ow <= w):
        raise UserError(f"{who}: the output {(oh, ow)} must be at least 1 and at most the input {(h, w)}.")
    stride = (h // oh, w // ow)
    return (h - (oh - 1) * stride[0], w - (ow - 1) * stride[1]), stride


def adaptive_max_pool2d(inp: Tensor, oshp: Pair | Tensor) -> Tensor:
    """Max pooling to a given output size: stride I // O, window I - (O - 1) * stride.

    >>> F.adaptive_max_pool2d(F.arange(16).reshape(1, 1, 4, 4), 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    kernel, stride = _adaptive(inp, oshp, "adaptive_max_pool2d")
    return ops.max_pool2d(inp, kernel=kernel, stride=stride, pad=(0, 0))


def adaptive_avg_pool2d(inp: Tensor, oshp: Pair | Tensor) -> Tensor:
    """Average pooling to a given output size: stride I // O, window I - (O - 1) * stride.

    >>> F.adaptive_avg_pool2d(F.arange(16).reshape(1, 1, 4, 4), (1, 1)).item()
    7.5
    """
    kernel, stride = _adaptive(inp, oshp, "adaptive_avg_pool2d")
    return ops.avg_pool2d(inp, kernel=kernel, stride=stride, pad=(0, 0), include_pad=False)


def deformable_psroi_pooling(
    inp: Tensor,
    rois: Tensor,
    trans: Tensor,
    no_trans: bool,
    part_size: int,
    pooled_h: int,
    pooled_w: int,
    sample_per_part: int,
    spatial_scale: float,
    trans_std: float = 0.1,
) -> Tensor:
    """Position-sensitive pooling of regions at learned positions."""
    raise NotImplementedError("deformable_psroi_pooling: arrives with the region pooling ops.")
