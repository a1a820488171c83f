"""Convolution, pooling, windows and padding. Images are NCHW."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core import _amp
from ..core._core import UserError, ops
from ..core.tensor.dtype import is_quantize
from ..core.tensor.indexing import _const, _filled, _iota, _placed
from ..core.tensor.qparams import as_integers_of
from ..core.tensor.utils import ArgumentError, is_fixed, make_shape_tuple, size_max, without_format
from ..tensor import Tensor
from ..utils.tuple_function import _pair, _pair_nonzero, _single, _single_nonzero, _triple, _triple_nonzero
from .elemwise import clip, maximum
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
        stride=stride if type(stride) is tuple else _pair_nonzero(stride, "conv2d: stride"),
        pad=padding if type(padding) is tuple else _pair(padding, "conv2d: padding"),
        dilate=dilation if type(dilation) is tuple else _pair_nonzero(dilation, "conv2d: dilation"),
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
        raise ArgumentError(f"conv1d: the input needs 3 dimensions (N, C, L); got {inp.shape}.")
    if bias is not None and bias.ndim != 3:
        raise ArgumentError(f"conv1d: the bias needs 3 dimensions (1, O, 1); got {bias.shape}.")
    (s,), (d,) = _single_nonzero(stride, "conv1d: stride"), _single_nonzero(dilation, "conv1d: dilation")
    (p,) = _single(padding, "conv1d: padding")
    y = ops.conv2d(  # images of one row: kernels run along rows
        ops.expand_dims(inp, axes=(-2,)),
        ops.expand_dims(weight, axes=(-2,)),
        None if bias is None else ops.expand_dims(bias, axes=(-2,)),
        stride=(1, s),
        pad=(0, p),
        dilate=(1, d),
        groups=groups,
    )
    return ops.squeeze(y, axes=(-2,))


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
    """3-D convolution (cross-correlation) with zero padding.

    Args:
        inp: (N, C, T, H, W).
        weight: (O, C, kt, kh, kw), or (groups, O/groups, C/groups, kt, kh, kw).
        bias: (1, O, 1, 1, 1).
        stride: step of the window.
        padding: zeros on each side.
        dilation: distance of the weights.
        groups: input and output channels fall into so many independent groups.
        conv_mode: only ``"cross_correlation"``.

    >>> F.conv3d(F.ones((1, 1, 3, 3, 3)), F.ones((1, 1, 3, 3, 3))).item()
    27.0
    """
    _check_mode("conv3d", conv_mode)
    y = ops.conv3d(
        inp,
        weight,
        stride=_triple_nonzero(stride, "conv3d: stride"),
        pad=_triple(padding, "conv3d: padding"),
        dilate=_triple_nonzero(dilation, "conv3d: dilation"),
        groups=groups,
    )
    return y if bias is None else y + bias


def conv_transpose2d_shape(
    inp: Tensor, weight: Tensor, stride: Pair, padding: Pair, output_padding: Pair, dilation: Pair, groups: int
) -> dict[str, Any]:
    """The attributes of the op behind ``conv_transpose2d``, the shape of its result among them."""
    s, d = (_pair_nonzero(v, f"conv_transpose2d: {n}") for v, n in ((stride, "stride"), (dilation, "dilation")))
    p, extra = (
        _pair(v, f"conv_transpose2d: {n}") for v, n in ((padding, "padding"), (output_padding, "output_padding"))
    )
    if inp.ndim != 4:
        raise UserError(f"conv_transpose2d: the input needs 4 dimensions (N, C, H, W); got {inp.shape}.")
    if weight.ndim != (4 if groups == 1 else 5):
        raise UserError(f"conv_transpose2d: the weight needs {4 if groups == 1 else 5} dimensions; got {weight.shape}.")
    if not all(a < b for a, b in zip(extra, s)):
        raise ArgumentError(f"conv_transpose2d: output_padding {extra} must be below stride {s}.")
    channels = weight.shape[-3] * groups
    size = tuple(
        (n - 1) * s[i] - 2 * p[i] + d[i] * (weight.shape[-2 + i] - 1) + 1 + extra[i]
        for i, n in enumerate(inp.shape[2:])
    )
    x_shape = (inp.shape[0], channels, *size)
    return {"stride": s, "pad": p, "dilate": d, "groups": groups, "x_shape": x_shape}


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
    sizes = conv_transpose2d_shape(inp, weight, stride, padding, output_padding, dilation, groups)
    y = ops.conv2d_dx(inp, weight, **sizes)
    if bias is None:
        return y
    return y + (bias.astype(y.dtype) if _amp.enabled() else bias)


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
    """3-D transposed convolution, the adjoint of ``conv3d``; arguments as for ``conv_transpose2d``.

    >>> F.conv_transpose3d(F.ones((1, 1, 2, 2, 2)), F.ones((1, 1, 2, 2, 2)), stride=2).shape
    (1, 1, 4, 4, 4)
    """
    s, p, d, extra = _triple_nonzero(stride), _triple(padding), _triple_nonzero(dilation), _triple(output_padding)
    if inp.ndim != 5:
        raise UserError(f"conv_transpose3d: the input needs 5 dimensions (N, C, T, H, W); got {inp.shape}.")
    if weight.ndim != (5 if groups == 1 else 6):
        raise UserError(f"conv_transpose3d: the weight needs {5 if groups == 1 else 6} dimensions; got {weight.shape}.")
    assert all(a < b for a, b in zip(extra, s)), f"conv_transpose3d: output_padding {extra} must be below stride {s}."
    size = tuple(
        (n - 1) * s[i] - 2 * p[i] + d[i] * (weight.shape[-3 + i] - 1) + 1 + extra[i]
        for i, n in enumerate(inp.shape[2:])
    )
    x_shape = (inp.shape[0], weight.shape[-4] * groups, *size)
    y = ops.conv3d_dx(inp, weight, stride=s, pad=p, dilate=d, groups=groups, x_shape=x_shape)
    return y if bias is None else y + bias


def _corners(image: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Bilinear samples of images (N, G, C, H, W) at points y, x (N, G, P): (N, G, P, C). What lies outside is 0."""
    n, g, _, height, width = image.shape
    rows = ops.transpose(image, perm=(0, 1, 3, 4, 2))
    first = _iota(n, image).reshape(n, 1, 1), _iota(g, image).reshape(1, g, 1)
    y0, x0 = ops.floor(y), ops.floor(x)
    total: Tensor | None = None
    for dy in (0, 1):
        for dx in (0, 1):
            cy, cx = y0 + dy, x0 + dx
            inside = ops.logical_and(
                ops.logical_and(ops.le(0, cy), ops.lt(cy, height)), ops.logical_and(ops.le(0, cx), ops.lt(cx, width))
            )
            weight = (y - y0 if dy else 1 - (y - y0)) * (x - x0 if dx else 1 - (x - x0))
            weight = ops.where(inside, weight, ops.fill_like(weight, value=0.0))
            at = (
                clip(c, 0, most).astype("int32")  # what is clipped has weight 0
                for c, most in ((cy, height - 1), (cx, width - 1))
            )
            part = ops.index_get(rows, *first, *at, axes=(0, 1, 2, 3), at=0) * ops.expand_dims(weight, axes=(-1,))
            total = part if total is None else total + part
    assert total is not None
    return total


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
    """Convolution whose taps are moved by learned offsets and weighted by a learned mask (modulated, version 2).

    Args:
        inp: (N, C, H, W).
        weight: (O, C, kh, kw), or (groups, O/groups, C/groups, kh, kw).
        offset: (N, 2 * D * kh * kw, OH, OW): for each of D groups of channels and each tap a shift along y, then x.
        mask: (N, D * kh * kw, OH, OW).
        bias: (1, O, 1, 1).
        stride: step of the window.
        padding: zeros on each side.
        dilation: distance of the weights.
        groups: number of independent groups of channels.
        conv_mode: only ``"cross_correlation"``.
        compute_mode: ``"default"`` or ``"float32"``.

    >>> x, w = F.ones((1, 1, 4, 4)), F.ones((1, 1, 3, 3))
    >>> F.deformable_conv2d(x, w, F.zeros((1, 18, 2, 2)), F.ones((1, 9, 2, 2))).tolist()
    [[[[9.0, 9.0], [9.0, 9.0]]]]
    """
    _check_mode("deformable_conv2d", conv_mode, compute_mode)
    s, p, d = _pair_nonzero(stride), _pair(padding), _pair_nonzero(dilation)
    if inp.ndim != 4:
        raise UserError(f"deformable_conv2d: the input needs 4 dimensions (N, C, H, W); got {inp.shape}.")
    n, c, height, width = inp.shape
    kh, kw = (int(k) for k in weight.shape[-2:])
    taps = kh * kw
    oh, ow = ((v + 2 * p[i] - d[i] * (k - 1) - 1) // s[i] + 1 for i, (v, k) in enumerate(((height, kh), (width, kw))))
    parts = offset.shape[1] // (2 * taps) if offset.ndim == 4 else 0
    if parts < 1 or c % parts or offset.shape != (n, 2 * parts * taps, oh, ow):
        raise UserError(
            f"deformable_conv2d: the offset must be (N, 2 * D * kh * kw, OH, OW) = ({n}, {2 * taps} * D, {oh}, {ow}) "
            f"with D a divisor of {c} channels; got {offset.shape}."
        )
    if mask.shape != (n, parts * taps, oh, ow):
        raise UserError(f"deformable_conv2d: the mask must be {(n, parts * taps, oh, ow)}; got {mask.shape}.")
    if weight.shape[-3] * groups != c:
        raise UserError(f"deformable_conv2d: the weight {weight.shape} does not fit {c} channels in {groups} groups.")
    # Where each tap would lie without offsets: (taps, OH, OW).
    base_y = (
        _const(np.arange(kh).repeat(kw)[:, None, None] * d[0] - p[0], inp) + _iota(oh, inp).reshape(1, -1, 1) * s[0]
    )
    base_x = _const(np.tile(np.arange(kw), kh)[:, None, None] * d[1] - p[1], inp) + _iota(ow, inp) * s[1]
    moved = offset.reshape(n, parts, taps, 2, oh, ow)
    y = moved[:, :, :, 0] + base_y.astype("float32")
    x = moved[:, :, :, 1] + base_x.astype("float32")
    image = inp.reshape(n, parts, c // parts, height, width)
    points = taps * oh * ow
    seen = _corners(image, y.reshape(n, parts, points), x.reshape(n, parts, points))
    seen = seen * mask.reshape(n, parts, points, 1)
    # (N, D, taps, OH*OW, C/D) -> (N, groups, C/groups * taps, OH*OW)
    cols = ops.transpose(seen.reshape(n, parts, taps, oh * ow, c // parts), perm=(0, 1, 4, 2, 3))
    cols = cols.reshape(n, groups, c // groups * taps, oh * ow)
    out = ops.matmul.uncast(weight.reshape(groups, -1, c // groups * taps), cols).reshape(n, -1, oh, ow)
    if out.dtype != inp.dtype and inp.dtype.itemsize == 2:  # positions and weights were float32
        out = out.astype(inp.dtype)
    return out if bias is None else out + bias


def local_conv2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    conv_mode: str = "cross_correlation",
) -> Tensor:
    """Convolution with a weight of its own at every position.

    Args:
        inp: (N, C, H, W).
        weight: (groups, OH, OW, C/groups, kh, kw, O/groups).
        bias: anything that broadcasts to the result (N, O, OH, OW).
        stride: step of the window.
        padding: zeros on each side.
        dilation: distance of the weights.
        conv_mode: only ``"cross_correlation"``.

    >>> F.local_conv2d(F.ones((1, 1, 3, 3)), F.ones((1, 2, 2, 1, 2, 2, 5))).shape
    (1, 5, 2, 2)
    """
    _check_mode("local_conv2d", conv_mode)
    if weight.ndim != 7:
        raise UserError(f"local_conv2d: the weight needs 7 dimensions (g, OH, OW, I, kh, kw, O); got {weight.shape}.")
    groups, oh, ow, channels, kh, kw, _ = weight.shape
    seen = sliding_window(inp, (kh, kw), padding, stride, dilation)
    if seen.shape[1:4] != (groups * channels, oh, ow):
        raise UserError(f"local_conv2d: the weight {weight.shape} does not fit windows {seen.shape} of {inp.shape}.")
    n, depth = inp.shape[0], channels * kh * kw
    cols = ops.transpose(seen.reshape(n, groups, channels, oh, ow, kh * kw), perm=(1, 3, 4, 0, 2, 5))
    out = ops.matmul.uncast(cols.reshape(groups, oh, ow, n, depth), weight.reshape(groups, oh, ow, depth, -1))
    out = ops.transpose(out, perm=(3, 0, 4, 1, 2)).reshape(n, -1, oh, ow)
    return out if bias is None else out + bias


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
    """Convolution that only joins positions with equal region numbers.

    Args:
        inp: (N, C, H, W).
        weight: (groups, O/groups, C/groups, kh, kw), also for one group.
        rin: (N, H, W), int32 or uint8: the region of each input position.
        rout: (N, OH, OW): the region of each output position.
        bias: (1, O, 1, 1).
        stride: step of the window.
        padding: zeros on each side.
        dilation: distance of the weights.
        groups: number of independent groups of channels.
        conv_mode: only ``"cross_correlation"``.
        compute_mode: ``"default"`` or ``"float32"``.

    >>> r = F.zeros((1, 3, 3), dtype="int32")
    >>> F.region_restricted_conv(F.ones((1, 1, 3, 3)), F.ones((1, 1, 1, 3, 3)), r, r[:, :1, :1]).item()
    9.0
    """
    _check_mode("region_restricted_conv", conv_mode, compute_mode)
    if weight.ndim != 5 or weight.shape[0] != groups or inp.ndim != 4 or weight.shape[2] * groups != inp.shape[1]:
        raise UserError(
            f"region_restricted_conv: the weight must be (groups, O/groups, C/groups, kh, kw) for {groups} groups of "
            f"an input (N, C, H, W); got {weight.shape} and {inp.shape}."
        )
    n, c = inp.shape[:2]
    kh, kw = weight.shape[-2:]
    seen = sliding_window(inp, (kh, kw), padding, stride, dilation)
    oh, ow = seen.shape[2:4]
    if rin.shape != (n, *inp.shape[2:]) or rout.shape != (n, oh, ow):
        raise UserError(
            f"region_restricted_conv: rin must be {(n, *inp.shape[2:])} and rout {(n, oh, ow)}; got {rin.shape} and "
            f"{rout.shape}."
        )
    # Padding is 0 in the input, so the region it gets does not matter.
    number = "int64" if np.int64 in (rin.dtype, rout.dtype) else "int32"
    region = sliding_window(ops.expand_dims(rin.astype(number), axes=(1,)), (kh, kw), padding, stride, dilation)
    same = ops.eq(region, ops.expand_dims(rout.astype(number), axes=(1, -1, -2)))
    joined = ops.where(same, seen, ops.full(shape=(), value=0.0, dtype=inp.dtype))
    cols = ops.transpose(joined.reshape(n, c, oh * ow, kh * kw), perm=(0, 1, 3, 2))
    cols = cols.reshape(n, groups, c // groups * kh * kw, oh * ow)
    out = ops.matmul.uncast(weight.reshape(groups, -1, c // groups * kh * kw), cols).reshape(n, -1, oh, ow)
    return out if bias is None else out + bias


def _windows(who: str, kernel_size: Pair, padding: Pair, stride: Pair, dilation: Pair) -> tuple[tuple[int, ...], ...]:
    return (
        _pair_nonzero(kernel_size, f"{who}: kernel_size"),
        _pair(padding, f"{who}: padding"),
        _pair_nonzero(stride, f"{who}: stride"),
        _pair_nonzero(dilation, f"{who}: dilation"),
    )


def sliding_window(inp: Tensor, kernel_size: Pair, padding: Pair = 0, stride: Pair = 1, dilation: Pair = 1) -> Tensor:
    """The windows that a convolution would see: (N, C, OH, OW, kh, kw).

    >>> F.sliding_window(F.ones((1, 2, 4, 4)), 3).shape
    (1, 2, 2, 2, 3, 3)
    """
    (kh, kw), p, s, d = _windows("sliding_window", kernel_size, padding, stride, dilation)
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
    (kh, kw), p, s, d = _windows("sliding_window_transpose", kernel_size, padding, stride, dilation)
    height, width = _pair_nonzero(output_size)
    full_h, full_w = height + 2 * p[0], width + 2 * p[1]
    n, c, oh, ow = inp.shape[:4]
    want = ((full_h - d[0] * (kh - 1) - 1) // s[0] + 1, (full_w - d[1] * (kw - 1) - 1) // s[1] + 1, kh, kw)
    assert inp.ndim == 6 and inp.shape[2:] == want, (
        f"sliding_window_transpose: windows of shape (N, C, {', '.join(map(str, want))}) are needed; got {inp.shape}."
    )
    y = _filled((n, c, full_h, full_w), 0.0, inp.dtype, inp)
    # Each pixel takes its windows row by row: the first one has it at its end.
    for i in reversed(range(kh)):
        for j in reversed(range(kw)):
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
    try:
        widths = [make_shape_tuple(w) for w in pad_width]
    except TypeError:
        raise TypeError(
            f"pad: pad_width needs (before, after) for up to {src.ndim} axes, as ((1, 1),); got {pad_width!r}."
        ) from None
    if len(widths) > src.ndim or any(len(w) != 2 or w[0] < 0 or w[1] < 0 for w in widths):
        raise UserError(f"pad: pad_width needs (before, after) for up to {src.ndim} axes; got {pad_width}.")
    how = mode.lower()
    if how == "constant":
        if is_fixed(sum(widths, ())) and not any(any(w) for w in widths):
            return without_format(ops.copy(src))
        shape = list(src.shape)
        starts = [0] * src.ndim
        for i, (before, after) in enumerate(widths):
            starts[i], shape[i] = before, before + src.shape[i] + after
        base = _filled(tuple(shape), float(constant_value), src.dtype, src)
        stops = tuple(a + n for a, n in zip(starts, src.shape))
        return without_format(_placed(base, src, tuple(starts), stops, (1,) * src.ndim))
    if how not in ("edge", "replicate", "reflect"):
        raise ArgumentError(f"pad: mode must be constant, edge, replicate or reflect; got {mode!r}.")
    x = src
    for i, w in enumerate(widths):
        if not is_fixed(w) or any(w):
            x = ops.take(x, _extended(src.shape[i], w[0], w[1], how == "reflect", src), axis=i)
    return without_format(ops.copy(x) if x is src else x)


@lru_cache(maxsize=256)
def _places(n: int, before: int, after: int, reflect: bool) -> npt.NDArray[Any]:
    return np.pad(np.arange(n, dtype=np.int32), (before, after), mode="reflect" if reflect else "edge")


def _extended(n: Any, before: Any, after: Any, reflect: bool, like: Tensor) -> Tensor:
    """Where the elements of an axis of size ``n`` come from that is extended at both ends."""
    if is_fixed((n, before, after)):
        return _const(_places(n, before, after, reflect), like)
    at = _iota(before + n + after, like) - before
    if not reflect:
        return ops.minimum(ops.maximum(at, 0), n - 1)
    period = size_max(2 * (n - 1), 1)  # there and back
    at = ops.mod(at, period)
    return ops.minimum(at, 2 * (n - 1) - at)


# ---- pooling


def _is_byte(x: Tensor) -> bool:
    """Whether pools give back integers: 8 bits go through float32 unharmed."""
    return x.dtype.kind in "iu" and x.dtype.itemsize == 1 and not is_quantize(x.dtype)


def max_pool2d(inp: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> Tensor:
    """The largest element of each window; the stride is the window size unless given.

    >>> F.max_pool2d(F.arange(16).reshape(1, 1, 4, 4), 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    kernel = _pair_nonzero(kernel_size, "max_pool2d: kernel_size")
    y = ops.max_pool2d(
        inp,
        kernel=kernel,
        stride=kernel if stride is None else _pair_nonzero(stride, "max_pool2d: stride"),
        pad=_pair(padding, "max_pool2d: padding"),
    )
    return y.astype(inp.dtype) if _is_byte(inp) else as_integers_of(inp, y)


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
    if mode.lower() not in ("average", "average_count_exclude_padding"):
        raise UserError(f"avg_pool2d: mode must be average or average_count_exclude_padding; got {mode!r}.")
    kernel = _pair_nonzero(kernel_size, "avg_pool2d: kernel_size")
    y = ops.avg_pool2d(
        inp,
        kernel=kernel,
        stride=kernel if stride is None else _pair_nonzero(stride, "avg_pool2d: stride"),
        pad=_pair(padding, "avg_pool2d: padding"),
        include_pad=mode.lower() == "average",
    )
    return ops.round(y).astype(inp.dtype) if _is_byte(inp) else y


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
    """Average pooling of regions whose parts are moved by learned offsets.

    Args:
        inp: (N, C, H, W).
        rois: (K, 5): image number and x1, y1, x2, y2.
        trans: (K or more, 2 * classes, part_size, part_size): shifts along x, then y, in parts of the region's size.
            The channels fall evenly to the classes.
        no_trans: leave the parts where they are.
        part_size: parts of a region along each axis that have a shift of their own.
        pooled_h: rows of the result.
        pooled_w: columns of the result.
        sample_per_part: samples along each axis of a cell of the result.
        spatial_scale: from the coordinates of ``rois`` to those of ``inp``.
        trans_std: factor of the shifts.

    Returns:
        (K, C, pooled_h, pooled_w).

    >>> rois = mge.tensor([[0.0, 0.0, 0.0, 3.0, 3.0]])
    >>> F.deformable_psroi_pooling(F.ones((1, 1, 4, 4)), rois, F.zeros((1, 2, 1, 1)), True, 1, 2, 2, 2, 1.0).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    args = (no_trans, part_size, pooled_h, pooled_w, sample_per_part, spatial_scale, trans_std)
    return _deformable_psroi(inp, rois, trans, *args)[0]


def _deformable_psroi(
    inp: Tensor,
    rois: Tensor,
    trans: Tensor,
    no_trans: bool,
    part_size: int,
    pooled_h: int,
    pooled_w: int,
    sample_per_part: int,
    spatial_scale: float,
    trans_std: float,
) -> tuple[Tensor, Tensor]:
    """The means of ``deformable_psroi_pooling`` and how many samples each is of."""
    if inp.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5:
        raise UserError(
            f"deformable_psroi_pooling: needs images (N, C, H, W) and rois (K, 5); got {inp.shape} and {rois.shape}."
        )
    _, c, height, width = inp.shape
    count, samples = rois.shape[0], sample_per_part
    classes = 1 if no_trans else trans.shape[1] // 2
    if not no_trans and trans.ndim == 4:
        trans = trans[:count]  # rows may be left over, as in a batch of the most rois there can be
    if not no_trans and (trans.shape != (count, 2 * classes, part_size, part_size) or c % classes):
        raise UserError(
            f"deformable_psroi_pooling: trans must be (K, 2 * classes, {part_size}, {part_size}) for {count} rois, "
            f"with classes a divisor of {c} channels; got {trans.shape}."
        )
    edges = ops.round(rois[:, 1:].detach())
    start = edges[:, :2] * spatial_scale - 0.5  # x, y
    size = maximum((edges[:, 2:] + 1) * spatial_scale - 0.5 - start, 0.1)
    cells = np.stack(np.meshgrid(np.arange(pooled_h), np.arange(pooled_w), indexing="ij"))  # (2, PH, PW)

    def positions(axis: int, pooled: int, limit: Any) -> tuple[Tensor, Tensor]:
        """Samples along x (axis 0) or y, (K, classes, PH, PW, S), and whether they count."""
        at = cells[1 - axis].reshape(1, 1, pooled_h, pooled_w, 1)
        inner = np.arange(samples).reshape(1, 1, 1, 1, samples) / samples
        wide = size[:, axis].reshape(count, 1, 1, 1, 1)
        place = start[:, axis].reshape(count, 1, 1, 1, 1) + wide * _const((at + inner) / pooled, inp, "float32")
        if not no_trans:
            part = (cells[0] * part_size // pooled_h, cells[1] * part_size // pooled_w)
            shift = trans.reshape(count, classes, 2, part_size, part_size)[:, :, axis]
            shift = ops.index_get(shift, *(_const(i, inp) for i in part), axes=(2, 3), at=2)
            place = place + ops.expand_dims(shift, axes=(-1,)) * wide * trans_std
        end = (limit if type(limit) is int else limit.astype("float32")) - 0.5
        counts = ops.logical_and(ops.le(-0.5, place), ops.le(place, end))
        return clip(place, 0, limit - 1), counts

    x, use_x = positions(0, pooled_w, width)
    y, use_y = positions(1, pooled_h, height)
    shape = (count, classes, pooled_h, pooled_w, samples, samples)
    y, use_y = ops.expand_dims(y, axes=(-1,)), ops.expand_dims(use_y, axes=(-1,))
    x, use_x = ops.expand_dims(x, axes=(-2,)), ops.expand_dims(use_x, axes=(-2,))
    use = ops.broadcast_to(ops.logical_and(use_x, use_y), shape=shape).astype(inp.dtype)
    image = ops.take(inp, rois[:, 0].astype("int32"), axis=0).reshape(count, classes, c // classes, height, width)
    points = pooled_h * pooled_w * samples * samples
    seen = _corners(
        image,
        ops.broadcast_to(y, shape=shape).reshape(count, classes, points),
        ops.broadcast_to(x, shape=shape).reshape(count, classes, points),
    )
    seen = seen.reshape(count, classes, pooled_h, pooled_w, samples * samples, c // classes)
    use = use.reshape(count, classes, pooled_h, pooled_w, samples * samples, 1)
    used = use.sum(axis=4)
    mean = (seen * use).sum(axis=4) / maximum(used, 1.0)
    used = ops.broadcast_to(used, shape=mean.shape)
    by_channel = [ops.transpose(y, perm=(0, 1, 4, 2, 3)).reshape(count, c, pooled_h, pooled_w) for y in (mean, used)]
    return by_channel[0], by_channel[1]
