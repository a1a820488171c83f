"""Functions on images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from ..core._core import UserError, ops
from ..core.tensor.dtype import is_quantize
from ..core.tensor.indexing import _const, _iota
from ..core.tensor.utils import ArgumentError, as_double, as_index, is_fixed, make_shape_tuple, size_min, with_shape
from ..tensor import Tensor
from ..utils.tuple_function import _pair_nonzero
from .conv import avg_pool2d, pad
from .elemwise import clip
from .tensor import stack

__all__ = [
    "correlation",
    "cvt_color",
    "flip",
    "interpolate",
    "nms",
    "nvof",
    "remap",
    "resize",
    "roi_align",
    "roi_pooling",
    "rot90",
    "rotate",
    "warp_affine",
    "warp_perspective",
]


def _check_image(who: str, inp: Tensor) -> None:
    if inp.ndim != 4:
        raise UserError(f"{who}: images need 4 dimensions (N, H, W, C); got {inp.shape}.")


def flip(inp: Tensor, vertical: bool = True, horizontal: bool = True) -> Tensor:
    """Mirror images (N, H, W, C) upside down, left to right, or both.

    >>> F.vision.flip(F.arange(2).reshape(1, 1, 2, 1), vertical=False).reshape(-1).tolist()
    [1.0, 0.0]
    """
    _check_image("flip", inp)
    return inp[:, :: -1 if vertical else 1, :: -1 if horizontal else 1]


def rot90(inp: Tensor, clockwise: bool = True) -> Tensor:
    """Turn images (N, H, W, C) by 90 degrees.

    >>> F.vision.rot90(F.arange(2).reshape(1, 1, 2, 1)).shape
    (1, 2, 1, 1)
    """
    _check_image("rot90", inp)
    turned = ops.transpose(inp, perm=(0, 2, 1, 3))
    return turned[:, :, ::-1] if clockwise else turned[:, ::-1]


_INTERPOLATE = {  # mode: dimensions of the input, mode of the op
    "linear": (3, "linear"),
    "bilinear": (4, "linear"),
    "trilinear": (5, "linear"),
    "bicubic": (4, "cubic"),
    "nearest": (4, "nearest"),
}


def _wide(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32: positions between pixels need the digits."""
    return x.astype("float32") if x.dtype.itemsize == 2 and x.dtype.kind != "u" and x.dtype.kind != "i" else x


def _scaled(n: Any, factor: float) -> Any:
    """``floor(n * factor)`` as Python computes it; a size that is another one in later calls stays a tensor."""
    if type(n) is int:
        return math.floor(n * factor)
    return ops.floor(as_double(n) * _const(factor, n, "float64")).astype("int32")


def interpolate(
    inp: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "bilinear",
    align_corners: bool | None = None,
) -> Tensor:
    """Resize to a size or by a factor.

    Args:
        inp: (N, C, H, W); (N, C, L) for mode ``"linear"``, (N, C, T, H, W) for ``"trilinear"``.
        size: the new size; one number stands for the first axis, the others become 1.
        scale_factor: the new size is ``floor(size * scale_factor)``.
        mode: ``"bilinear"``, ``"linear"``, ``"trilinear"``, ``"bicubic"`` or ``"nearest"``.
        align_corners: for the linear modes, whether the outermost elements are met exactly; otherwise elements are
            cells of equal size and their centres are met.

    >>> F.vision.interpolate(mge.tensor([[[[0.0, 4.0]]]]), (1, 4)).tolist()
    [[[[0.0, 1.0, 3.0, 4.0]]]]
    """
    mode = mode.lower()
    if mode not in _INTERPOLATE:
        raise ValueError(f"interpolate: mode must be one of {', '.join(_INTERPOLATE)}; got {mode!r}.")
    ndim, kind = _INTERPOLATE[mode]
    if kind != "linear" and align_corners is not None:
        raise ValueError("interpolate: align_corners needs mode linear, bilinear or trilinear.")
    assert inp.ndim == ndim, f"interpolate: mode {mode} takes {ndim} dimensions; got {inp.shape}."
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: exactly one of size and scale_factor must be given.")
    axes = inp.shape[2:]
    if scale_factor is not None:
        one = isinstance(scale_factor, (int, float)) or getattr(scale_factor, "ndim", 1) == 0
        factors: list[float] = [cast("float", scale_factor)] * len(axes) if one else list(cast("Any", scale_factor))
        if len(factors) != len(axes):
            raise ValueError(f"interpolate: {len(axes)} scale factors are needed; got {factors}.")
        if not all(math.isfinite(f) and f > 0 for f in factors):
            raise UserError(f"interpolate: a scale factor must be above 0 and finite; got {scale_factor}.")
        out = tuple(_scaled(n, float(f)) for n, f in zip(axes, factors))
    else:
        assert size is not None
        out = make_shape_tuple(size)
        if len(out) == 1:
            out = out + (1,) * (len(axes) - 1)
        if len(out) != len(axes):
            raise ValueError(f"interpolate: {len(axes)} sizes are needed; got {out}.")
    if inp.dtype.name in ("uint8", "int8") and not is_quantize(inp.dtype):  # images: as in F.vision.resize
        return _rounded(
            ops.resize(inp.astype("float32"), size=out, mode=kind, align_corners=bool(align_corners)), inp.dtype
        )
    return ops.resize(_wide(inp), size=out, mode=kind, align_corners=bool(align_corners))


def resize(
    inp: Tensor, size: Sequence[int], format: str = "NCHW", imode: str = "bilinear", max_size: int | None = None
) -> Tensor:
    """Resize images to a height and a width.

    Args:
        inp: (N, C, H, W), or (N, H, W, C) with ``format="NHWC"``.
        size: (height, width).
        format: ``"NCHW"`` or ``"NHWC"``.
        imode: ``"bilinear"``, ``"bicubic"`` or ``"nearest"``.
        max_size: neither side gets larger than this.

    >>> F.vision.resize(F.ones((1, 3, 4, 4)), (2, 8)).shape
    (1, 3, 2, 8)
    """
    kinds = {"bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic", "nearest": "nearest"}
    if imode not in kinds:
        raise ValueError(f"resize: imode must be bilinear, bicubic or nearest; got {imode!r}.")
    out = make_shape_tuple(size)
    if len(out) != 2:
        raise ValueError(f"resize: size must be (height, width); got {size}.")
    if max_size is not None:
        out = (size_min(out[0], max_size), size_min(out[1], max_size))
    return _in_nchw("resize", inp, format, lambda x: ops.resize(_wide(x), size=out, mode=kinds[imode]))


def _rounded(x: Tensor, dtype: Any) -> Tensor:
    """The nearest integers, in ``dtype``."""
    limits = np.iinfo(dtype)
    return clip(ops.round(x), limits.min, limits.max).astype(dtype)


def _in_nchw(who: str, inp: Tensor, format: str, fn: Any) -> Tensor:
    """``fn`` on images in NCHW; integers pass through float32 and are rounded back."""
    if format not in ("NCHW", "NHWC"):
        raise ValueError(f"{who}: format must be NCHW or NHWC; got {format!r}.")
    if inp.ndim != 4:
        raise UserError(f"{who}: images need 4 dimensions ({', '.join(format)}); got {inp.shape}.")
    x = inp if format == "NCHW" else ops.transpose(inp, perm=(0, 3, 1, 2))
    integer = inp.dtype.kind in "iu" and not is_quantize(inp.dtype)
    y = fn(x.astype("float32") if integer else x)
    if integer:
        y = _rounded(y, inp.dtype)
    elif y.dtype != inp.dtype:
        y = y.astype(inp.dtype)
    return y if format == "NCHW" else ops.transpose(y, perm=(0, 2, 3, 1))


def _sample(x: Tensor, place: Tensor, border_mode: str, value: float, interp_mode: str, who: str) -> Tensor:
    border, interp = border_mode.lower(), interp_mode.lower()
    if border not in ("replicate", "reflect", "reflect_101", "wrap", "constant"):
        raise UserError(
            f"{who}: border_mode must be replicate, reflect, reflect_101, wrap or constant; got {border_mode!r}."
        )
    if interp not in ("linear", "nearest"):
        raise UserError(f"{who}: interp_mode must be linear or nearest; got {interp_mode!r}.")
    return ops.remap(_wide(x), place, border=border, nearest=interp == "nearest", value=float(value))


def _grid(out_shape: Any, mat: Tensor, rows: int, who: str) -> tuple[Tensor, tuple[int, int]]:
    """Every output position (x, y, 1) through the matrices: (B, OH * OW, rows)."""
    sizes = make_shape_tuple(out_shape)
    height, width = sizes * 2 if len(sizes) == 1 else sizes
    if mat.ndim != 3 or mat.shape[1:] != (rows, 3):
        raise UserError(f"{who}: the matrices must be (B, {rows}, 3); got {mat.shape}.")
    if is_fixed((height, width)):
        y, x = np.mgrid[:height, :width].reshape(2, -1)
        points = _const(np.stack([x, y, np.ones_like(x)], axis=1), mat, "float32")
    else:
        at = _iota(height * width, mat)
        points = ops.transpose(
            stack([ops.mod(at, width), ops.floor_div(at, width), ops.fill_like(at, value=1.0)]).astype("float32"),
            perm=(1, 0),
        )
    return ops.matmul.uncast(points, mat, tb=True), (height, width)


def _in_steps(x: Tensor, format: str, interp_mode: str) -> bool:
    """Whether positions go in steps of 1/32 of a pixel: linear sampling of (N, H, W, C) of up to three channels."""
    return format == "NHWC" and interp_mode.lower() == "linear" and x.ndim == 4 and bool(x.shape[3] <= 3)


def warp_perspective(
    inp: Tensor,
    mat: Tensor,
    out_shape: tuple[int, int] | int | Tensor,
    mat_idx: Iterable[int] | Tensor | None = None,
    border_mode: str = "replicate",
    border_val: float = 0.0,
    format: str = "NCHW",
    interp_mode: str = "linear",
) -> Tensor:
    """Images seen through 3 x 3 matrices that map output to input positions.

    Args:
        inp: (N, C, H, W), or (N, H, W, C) with ``format="NHWC"``.
        mat: (B, 3, 3); a position (x, y, 1) of the output is taken to (x', y', w') of the input, divided by w'.
        out_shape: (height, width) of the result.
        mat_idx: the image that each matrix applies to; without it B is N.
        border_mode: ``"replicate"``, ``"reflect"``, ``"reflect_101"``, ``"wrap"`` or ``"constant"``.
        border_val: for ``"constant"``.
        format: ``"NCHW"`` or ``"NHWC"``.
        interp_mode: ``"linear"`` or ``"nearest"``.

    In ``"NHWC"`` of up to three channels the positions of linear interpolation are rounded to 1/32 of a pixel, as in
    the original.

    >>> x = F.arange(9).reshape(1, 1, 3, 3)
    >>> shift = mge.tensor([[[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]])
    >>> F.vision.warp_perspective(x, shift, (2, 2)).tolist()
    [[[[4.0, 5.0], [7.0, 8.0]]]]
    """
    through, (height, width) = _grid(out_shape, _wide(mat), 3, "warp_perspective")
    place = (through[:, :, :2] / through[:, :, 2:]).reshape(mat.shape[0], height, width, 2)
    x = inp
    if mat_idx is not None:
        index = mat_idx if isinstance(mat_idx, Tensor) else Tensor(list(mat_idx), "int32", inp.device)
        index = with_shape(
            index,
            mat.shape[:1],
            lambda: AssertionError(f"warp_perspective: mat_idx needs {len(mat)} entries; got {len(index)}."),
        )
        x = ops.take(inp, as_index(index, inp.shape[0], "warp_perspective", "mat_idx"), axis=0)
    if _in_steps(x, format, interp_mode):
        exact = place.detach()
        place = ops.round(exact * 32) / 32 + (place - exact)  # the gradient is that of the position itself
    return _in_nchw(
        "warp_perspective",
        x,
        format,
        lambda v: _sample(v, place, border_mode, border_val, interp_mode, "warp_perspective"),
    )


def warp_affine(
    inp: Tensor,
    mat: Tensor,
    out_shape: tuple[int, int] | int | Tensor,
    border_mode: str = "replicate",
    border_val: float = 0.0,
    format: str = "NHWC",
    interp_mode: str = "linear",
) -> Tensor:
    """Images seen through 2 x 3 matrices that map output to input positions; arguments as for ``warp_perspective``.

    >>> x = F.arange(9).reshape(1, 3, 3, 1)
    >>> shift = mge.tensor([[[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]])
    >>> F.vision.warp_affine(x, shift, (2, 2)).reshape(-1).tolist()
    [4.0, 5.0, 7.0, 8.0]
    """
    through, (height, width) = _grid(out_shape, _wide(mat), 2, "warp_affine")
    place = through.reshape(mat.shape[0], height, width, 2)
    if _in_steps(inp, format, interp_mode):
        # What a column and what a row adds, each rounded to 1/1024, then their sum to 1/32.
        m = _wide(mat).detach() * 1024
        x, y = (_iota(n, mat).astype("float32") for n in (width, height))
        columns, rows = ops.round(m[:, :, :1] * x), ops.round(m[:, :, 1:2] * y + m[:, :, 2:]) + 16
        nearest = ops.floor((ops.expand_dims(rows, axes=(3,)) + ops.expand_dims(columns, axes=(2,))) / 32) / 32
        place = nearest.transpose(0, 2, 3, 1) + (place - place.detach())  # the gradient is that of the position itself
    return _in_nchw(
        "warp_affine", inp, format, lambda v: _sample(v, place, border_mode, border_val, interp_mode, "warp_affine")
    )


def remap(
    inp: Tensor, map_xy: Tensor, border_mode: str = "replicate", scalar: float = 0.0, interp_mode: str = "linear"
) -> Tensor:
    """Images sampled at given positions.

    Args:
        inp: (N, C, H, W).
        map_xy: (N, OH, OW, 2): for each pixel of the result x and y in the input, counted in pixels.
        border_mode: ``"replicate"``, ``"reflect"``, ``"reflect_101"``, ``"wrap"`` or ``"constant"``.
        scalar: for ``"constant"``.
        interp_mode: ``"linear"`` or ``"nearest"``.

    >>> x = mge.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> F.vision.remap(x, mge.tensor([[[[0.5, 0.5], [1.0, 0.0]]]])).tolist()
    [[[[2.5, 2.0]]]]
    """
    return _in_nchw("remap", inp, "NCHW", lambda v: _sample(v, map_xy, border_mode, scalar, interp_mode, "remap"))


def roi_align(
    inp: Tensor,
    rois: Tensor,
    output_shape: int | Sequence[int],
    mode: str = "average",
    spatial_scale: float = 1.0,
    sample_points: int | Sequence[int] = 2,
    aligned: bool = True,
) -> Tensor:
    """Regions of images, sampled between pixels to one size.

    Args:
        inp: (N, C, H, W).
        rois: (K, 5): image number and x1, y1, x2, y2.
        output_shape: (height, width) of each result, or one number for both.
        mode: ``"average"`` or ``"max"`` of the samples of a cell.
        spatial_scale: from the coordinates of ``rois`` to those of ``inp``.
        sample_points: samples along each axis of a cell.
        aligned: coordinates name corners of pixels, so half a pixel is taken off.

    >>> F.vision.roi_align(F.ones((1, 2, 4, 4)), mge.tensor([[0.0, 0.0, 0.0, 4.0, 4.0]]), 2).shape
    (1, 2, 2, 2)
    """
    if mode not in ("average", "max"):
        raise ArgumentError(f"roi_align: mode must be average or max; got {mode!r}.")
    return ops.roi_align(
        _wide(inp),
        rois,
        size=_pair_nonzero(output_shape),
        samples=_pair_nonzero(sample_points),
        scale=float(spatial_scale),
        aligned=aligned,
        max=mode == "max",
    )


def roi_pooling(
    inp: Tensor, rois: Tensor, output_shape: int | Sequence[int], mode: str = "max", scale: float = 1.0
) -> Tensor:
    """Regions of images, pooled to one size. Corners are rounded to pixels; a cell without pixels gives 0.

    Args:
        inp: (N, C, H, W).
        rois: (K, 5): image number and x1, y1, x2, y2, the last pixels included.
        output_shape: (height, width) of each result, or one number for both.
        mode: ``"max"`` or ``"average"``.
        scale: from the coordinates of ``rois`` to those of ``inp``.

    >>> x = F.arange(16).reshape(1, 1, 4, 4)
    >>> F.vision.roi_pooling(x, mge.tensor([[0.0, 0.0, 0.0, 3.0, 3.0]]), 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    if mode not in ("average", "max"):
        raise ArgumentError(f"roi_pooling: mode must be max or average; got {mode!r}.")
    return ops.roi_pooling(_wide(inp), rois, size=_pair_nonzero(output_shape), scale=float(scale), max=mode == "max")


def nms(boxes: Tensor, scores: Tensor, iou_thresh: float, max_output: int | None = None) -> Tensor:
    """The boxes that remain when those that overlap a better one are dropped.

    Args:
        boxes: (N, 4): x1, y1, x2, y2.
        scores: (N,); of equal scores the first is better.
        iou_thresh: a box goes when it shares more than this part of its union with a better one that stayed.
        max_output: at most so many are kept.

    Returns:
        int32 indices by falling score. How many there are depends on values, so they are counted on the host.

    >>> boxes = mge.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.9], [5.0, 5.0, 9.0, 9.0]])
    >>> F.vision.nms(boxes, mge.tensor([0.5, 0.9, 0.3]), 0.5).tolist()
    [1, 2]
    """
    fixed = is_fixed(boxes.shape) and is_fixed(scores.shape)  # otherwise the op looks
    if boxes.ndim != 2 or scores.ndim != 1 or (fixed and (boxes.shape[1] != 4 or scores.shape != boxes.shape[:1])):
        raise ArgumentError(f"nms: needs boxes (N, 4) and scores (N,); got {boxes.shape} and {scores.shape}.")
    most = boxes.shape[0] if max_output is None else size_min(*make_shape_tuple(max_output, boxes.shape[0]))
    index, count = ops.nms(
        boxes.detach().astype("float32"),
        scores.detach().astype("float32"),
        iou_thresh=float(iou_thresh),
        max_output=most,
    )
    return index[:count]


def correlation(
    data1: Tensor,
    data2: Tensor,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    pad_size: int = 0,
    is_multiply: bool = True,
) -> Tensor:
    """How well patches of two images agree at each displacement (FlowNet).

    Args:
        data1: (N, C, H, W).
        data2: the same shape; patches are moved here.
        kernel_size: side of a patch, odd.
        max_displacement: how far patches are moved along each axis.
        stride1: step between patches.
        stride2: step between displacements.
        pad_size: zeros around the images.
        is_multiply: the mean product of the patches; otherwise the mean absolute difference.

    Returns:
        (N, D * D, OH, OW) with D = 2 * (max_displacement // stride2) + 1.

    >>> x = F.ones((1, 2, 4, 4))
    >>> F.vision.correlation(x, x, max_displacement=1, pad_size=1).shape
    (1, 9, 4, 4)
    """
    if data1.ndim != 4 or data1.shape != data2.shape:
        raise UserError(
            f"correlation: needs two images (N, C, H, W) of one shape; got {data1.shape} and {data2.shape}."
        )
    if kernel_size % 2 != 1:
        raise UserError(f"correlation: kernel_size must be odd; got {kernel_size}.")
    border = max_displacement + kernel_size // 2
    widths = ((0, 0), (0, 0), (pad_size, pad_size), (pad_size, pad_size))
    a, b = (pad(x, widths) if pad_size else x for x in (data1, data2))
    height, width = a.shape[2:]
    oh, ow = (-(-(n - 2 * border) // stride1) for n in (height, width))
    if oh < 1 or ow < 1:
        raise UserError(f"correlation: displacement and kernel leave nothing of {data1.shape}; raise pad_size.")
    half = kernel_size // 2
    reach = max_displacement // stride2
    moves = [i * stride2 for i in range(-reach, reach + 1)]

    def seen(x: Tensor, dy: int, dx: int) -> Tensor:
        top, left = border - half + dy, border - half + dx
        return x[
            :,
            :,
            top : top + (oh - 1) * stride1 + kernel_size,
            left : left + (ow - 1) * stride1 + kernel_size,
        ]

    still = seen(a, 0, 0)
    maps = []
    for dy in moves:
        for dx in moves:
            moved = seen(b, dy, dx)
            one = (still * moved if is_multiply else ops.abs(still - moved)).mean(axis=1, keepdims=True)
            maps.append(avg_pool2d(one, kernel_size, stride1) if kernel_size > 1 or stride1 > 1 else one)
    return ops.concat(*maps, axis=1)


# Each row gives one output channel from the input channels, the last column a constant (in parts of the full range).
_GRAY = (0.299, 0.587, 0.114)
_SWAPPED = [(0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)]
_COLOURS: dict[str, list[tuple[float, ...]]] = {
    "RGB2GRAY": [(*_GRAY, 0.0)],
    "BGR2GRAY": [(*_GRAY[::-1], 0.0)],
    "RGBA2GRAY": [(*_GRAY, 0.0, 0.0)],
    "RGB2BGR": [(*r, 0.0) for r in _SWAPPED],
    "BGR2RGB": [(*r, 0.0) for r in _SWAPPED],
    "RGBA2RGB": [(*r, 0.0, 0.0) for r in _SWAPPED[::-1]],
    "RGBA2BGR": [(*r, 0.0, 0.0) for r in _SWAPPED],
    "GRAY2RGB": [(1.0, 0.0)] * 3,
    # U = 0.492 * (B - Y) + 0.5, V = 0.877 * (R - Y) + 0.5
    "RGB2YUV": [
        (*_GRAY, 0.0),
        (-0.492 * 0.299, -0.492 * 0.587, 0.492 * 0.886, 0.5),
        (0.877 * 0.701, -0.877 * 0.587, -0.877 * 0.114, 0.5),
    ],
    "YUV2RGB": [
        (1.0, 0.0, 1.14, -0.5 * 1.14),
        (1.0, -0.395, -0.581, 0.5 * (0.395 + 0.581)),
        (1.0, 2.032, 0.0, -0.5 * 2.032),
    ],
}
# Y, U and V (both around 0) to red, green and blue; BT.601 leaves out the ends of the range.
_FULL = [(1.0, 0.0, 1.402, 0.0), (1.0, -0.344, -0.714, 0.0), (1.0, 1.772, 0.0, 0.0)]
_BT601 = [
    (1.164, 0.0, 1.59375, -1.164 * 16 / 255),
    (1.164, -0.390625, -0.8125, -1.164 * 16 / 255),
    (1.164, 2.0, 0.0, -1.164 * 16 / 255),
]
# Of integers MegEngine computes with integers: sums of these rows in parts of 2^bits, rounded down.
_FIXED_FULL = ([(256, 0, 359, 0), (256, -88, -183, 255), (256, 454, 0, 0)], 8)
_FIXED: dict[str, tuple[Sequence[Sequence[int]], int]] = {
    "RGB2GRAY": ([(4899, 9617, 1868, 8192)], 14),
    "BGR2GRAY": ([(1868, 9617, 4899, 8192)], 14),
    "RGBA2GRAY": ([(4899, 9617, 1868, 0, 8192)], 14),
    # of red, green, blue and the rounded Y
    "RGB2YUV": ([(0, 0, 0, 16384, 0), (0, 0, 8061, -8061, 2105344), (14369, 0, 0, -14369, 2105344)], 14),
    "YUV2RGB": (
        [
            (16384, 0, 18678, 8192 - 128 * 18678),
            (16384, -6472, -9519, 8192 + 128 * (6472 + 9519)),
            (16384, 33292, 0, 8192 - 128 * 33292),
        ],
        14,
    ),
}
_SUBSAMPLED = ("NV12", "NV21", "YU12", "YV12")


def _mixed(x: Tensor, rows: Sequence[Sequence[float]], full: float) -> Tensor:
    """Every pixel's channels, the last axis, through a matrix with a constant column."""
    table = np.asarray(rows)
    return ops.matmul.uncast(x, _const(table[:, :-1], x, "float32"), tb=True) + _const(
        table[:, -1] * full, x, "float32"
    )


def _mixed_integers(x: Tensor, fixed: tuple[Sequence[Sequence[int]], int]) -> Tensor:
    """The same in integers: sums stay below 2^24, so float32 holds them."""
    rows, bits = fixed
    return ops.floor(_mixed(x, rows, 1.0) / float(1 << bits))


def _unpacked(inp: Tensor, name: str) -> Tensor:
    """Images (N, 3H/2, W, 1) with U and V of half the size below Y as (N, H, W, 3), U and V around 0."""
    n, rows, width, channels = inp.shape
    if channels != 1 or rows % (6 if name[-4:] in ("YU12", "YV12") else 3) or width % 2:
        raise UserError(f"cvt_color: {name} takes (N, 3H/2, W, 1) with even H and W; got {inp.shape}.")
    height = rows // 3 * 2
    x = inp.astype("float32").reshape(n, rows, width)
    small = x[:, height:]
    half = (n, height // 2, width // 2)
    if name[-4:] in ("YU12", "YV12"):
        planes = small.reshape(n, 2, *half[1:])
        first, second = planes[:, 0], planes[:, 1]
    else:
        pairs = small.reshape(*half, 2)
        first, second = pairs[..., 0], pairs[..., 1]
    u, v = (first, second) if name.endswith(("NV12", "YU12")) else (second, first)

    def doubled(p: Tensor) -> Tensor:
        wide = ops.broadcast_to(ops.expand_dims(p, axes=(2, 4)), shape=(n, half[1], 2, half[2], 2))
        return wide.reshape(n, height, width) - 128.0

    parts = (x[:, :height], doubled(u), doubled(v))
    return ops.concat(*(ops.expand_dims(p, axes=(-1,)) for p in parts), axis=3)


def cvt_color(inp: Tensor, mode: str = "") -> Tensor:
    """Convert the colours of images (N, H, W, C).

    Args:
        inp: uint8 images, or float32 with values from 0 to 1.
        mode: RGB2GRAY, BGR2GRAY, RGBA2GRAY, RGB2BGR, BGR2RGB, RGBA2RGB, RGBA2BGR, GRAY2RGB, RGB2YUV, YUV2RGB, in any
            case; and for uint8 images (N, 3H/2, W, 1) whose U and V have half the size: YUV2GRAY_x, YUV2RGB_x,
            YUV2BGR_x and BT601_YUV2RGB_x, BT601_YUV2BGR_x with x one of NV12, NV21, YU12, YV12; YCrCb2RGB and
            YCrCb2BGR, which are laid out like NV21.

    >>> F.vision.cvt_color(F.ones((1, 2, 2, 3)), "RGB2GRAY").shape
    (1, 2, 2, 1)
    """
    _check_image("cvt_color", inp)
    name = mode.upper()
    if name in ("YCRCB2RGB", "YCRCB2BGR"):
        name = f"YUV2{name[-3:]}_NV21"
    table, _, layout = name.rpartition("_")
    packed = layout in _SUBSAMPLED and table in (
        "YUV2GRAY", "YUV2RGB", "YUV2BGR", "BT601_YUV2RGB", "BT601_YUV2BGR"
    )  # fmt: skip
    assert packed or name in _COLOURS, (
        f"cvt_color: mode must be one of {', '.join(_COLOURS)}, YUV2GRAY, YUV2RGB, YUV2BGR, BT601_YUV2RGB or "
        f"BT601_YUV2BGR with _NV12, _NV21, _YU12 or _YV12, YCrCb2RGB or YCrCb2BGR; got {mode!r}."
    )
    integer = inp.dtype.kind in "iu" and not is_quantize(inp.dtype)
    if packed:
        x = _unpacked(inp, name)
        if table == "YUV2GRAY":
            y = x[..., :1]
        else:
            narrow = table.startswith("BT601")
            y = (
                _mixed_integers(x, _FIXED_FULL)
                if integer and not narrow
                else _mixed(x, _BT601 if narrow else _FULL, 255.0)
            )
            y = y if table.endswith("RGB") else y[..., ::-1]
        return clip(ops.round(y), 0, 255).astype(inp.dtype) if integer else y
    rows = _COLOURS[name]
    if inp.shape[3] != len(rows[0]) - 1:
        raise UserError(f"cvt_color: {name} takes {len(rows[0]) - 1} channels; got {inp.shape}.")
    if all(sorted(r)[-1] == sum(r) == 1 for r in rows):  # channels move, nothing is computed
        return ops.take(inp, _const(np.argmax(rows, axis=1), inp), axis=3)
    x = inp.astype("float32")
    if not integer:
        return _mixed(x, rows, 1.0)
    if name == "RGB2YUV":
        x = ops.concat(x, _mixed_integers(x, _FIXED["RGB2GRAY"]), axis=3)
    return clip(_mixed_integers(x, _FIXED[name]), 0, 255).astype(inp.dtype)


def rotate(inp: Tensor, angle: float = 0.0, format: str = "NCHW", interp_mode: str = "bilinear") -> Tensor:
    """Turn images about their centre by an angle in degrees; what comes from outside is 0.

    Args:
        inp: (N, C, H, W), or (N, H, W, C) with ``format="NHWC"``.
        angle: in degrees, anticlockwise.
        format: ``"NCHW"`` or ``"NHWC"``.
        interp_mode: ``"bilinear"`` (``"area"`` is taken as the same).

    >>> F.vision.rotate(F.ones((1, 1, 3, 3)), 0.0).tolist()
    [[[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]]]
    """
    if interp_mode not in ("bilinear", "area"):
        raise ValueError(f"rotate: interp_mode must be bilinear or area; got {interp_mode!r}.")
    _check_image("rotate", inp)
    height, width = inp.shape[2:] if format == "NCHW" else inp.shape[1:3]
    turn = math.radians(float(angle))
    c, s = math.cos(turn), math.sin(turn)
    if is_fixed((height, width)):
        cx, cy = (width - 1) / 2, (height - 1) / 2
        mat = _const([[c, -s, cx - c * cx + s * cy], [s, c, cy - s * cx - c * cy]], inp, "float32")
    else:
        mat = _turned(c, s, as_double(width - 1), as_double(height - 1), inp)
    mats = ops.broadcast_to(mat, shape=(inp.shape[0], 2, 3))
    return warp_affine(inp, mats, (height, width), border_mode="constant", format=format)


def _turned(cosine: float, sine: float, right: Tensor, bottom: Tensor, like: Tensor) -> Tensor:
    """The matrix of ``rotate`` from the last positions, in float64 until the end as with numbers."""
    c, s, half = (_const(v, like, "float64") for v in (cosine, sine, 2.0))
    cx, cy = right / half, bottom / half
    rows = [c, -s, cx - c * cx + s * cy, s, c, cy - s * cx - c * cy]
    return stack(rows).astype("float32").reshape(2, 3)


def nvof(src: Tensor, precision: int = 1) -> Tensor:
    """Optical flow, computed by NVIDIA hardware."""
    raise NotImplementedError("nvof: needs NVIDIA's optical flow library, which this build does not have.")
