"""Functions on images. Most signatures wait for their ops; what slices can do works."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from ..core._core import UserError, ops
from ..tensor import Tensor

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


def _not_yet(name: str) -> NoReturn:
    raise NotImplementedError(f"{name}: arrives with the vision ops.")


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


def interpolate(
    inp: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "bilinear",
    align_corners: bool | None = None,
) -> Tensor:
    """Resize images to a size or by a factor."""
    _not_yet("interpolate")


def resize(
    inp: Tensor, size: Sequence[int], format: str = "NCHW", imode: str = "bilinear", max_size: int | None = None
) -> Tensor:
    """Resize images to a height and a width."""
    _not_yet("resize")


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
    """Images seen through 3 x 3 matrices that map output to input positions."""
    _not_yet("warp_perspective")


def warp_affine(
    inp: Tensor,
    mat: Tensor,
    out_shape: tuple[int, int] | int | Tensor,
    border_mode: str = "replicate",
    border_val: float = 0.0,
    format: str = "NHWC",
    interp_mode: str = "linear",
) -> Tensor:
    """Images seen through 2 x 3 matrices that map output to input positions."""
    _not_yet("warp_affine")


def remap(
    inp: Tensor, map_xy: Tensor, border_mode: str = "replicate", scalar: float = 0.0, interp_mode: str = "linear"
) -> Tensor:
    """Images sampled at given positions."""
    _not_yet("remap")


def roi_align(
    inp: Tensor,
    rois: Tensor,
    output_shape: int | Sequence[int],
    mode: str = "average",
    spatial_scale: float = 1.0,
    sample_points: int | Sequence[int] = 2,
    aligned: bool = True,
) -> Tensor:
    """Regions of images, sampled to one size."""
    _not_yet("roi_align")


def roi_pooling(
    inp: Tensor, rois: Tensor, output_shape: int | Sequence[int], mode: str = "max", scale: float = 1.0
) -> Tensor:
    """Regions of images, pooled to one size."""
    _not_yet("roi_pooling")


def nms(boxes: Tensor, scores: Tensor, iou_thresh: float, max_output: int | None = None) -> Tensor:
    """The boxes that remain when those that overlap a better one are dropped."""
    _not_yet("nms")


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
    """How well patches of two images agree at each displacement."""
    _not_yet("correlation")


def cvt_color(inp: Tensor, mode: str = "") -> Tensor:
    """Convert the colours of images (N, H, W, C)."""
    _not_yet("cvt_color")


def rotate(inp: Tensor, angle: float = 0.0, format: str = "NCHW", interp_mode: str = "bilinear") -> Tensor:
    """Turn images about their centre."""
    _not_yet("rotate")


def nvof(src: Tensor, precision: int = 1) -> Tensor:
    """Optical flow, computed by NVIDIA hardware."""
    _not_yet("nvof")
