"""What the op classes for images mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import functional as F
from ...functional import conv, vision
from ...tensor import Tensor
from .._core import ops
from ..tensor.utils import make_shape_tuple
from .rules import RULES, pullback, rule


def _name(member: Any) -> str:
    return str(member.members()[0])


def _no_notes() -> Tensor:
    """Empty, where the original keeps positions of maxima for its backward pass."""
    return F.zeros((0,), dtype="int32")


def _only_nchw(op: Any) -> None:
    if _name(op.format) != "NCHW":
        raise NotImplementedError(f"{type(op).__name__}: format must be NCHW; got {_name(op.format)}.")


@rule("ROIAlign")
def _roi_align(op: Any, x: Tensor, rois: Tensor) -> Sequence[Tensor]:
    _only_nchw(op)
    if op.offset not in (0, 0.5):  # the op knows these two; any other moves the regions
        shift = op.offset / op.spatial_scale
        rois = rois - Tensor([0.0] + [shift] * 4, device=rois.device)
    y = vision.roi_align(
        x,
        rois,
        (op.pooled_height, op.pooled_width),
        _name(op.mode).lower(),
        op.spatial_scale,
        (op.sample_height, op.sample_width),
        aligned=op.offset == 0.5,
    )
    return y, _no_notes()


@rule("ROIPooling")
def _roi_pooling(op: Any, x: Tensor, rois: Tensor, shape: Tensor) -> Sequence[Tensor]:
    return vision.roi_pooling(x, rois, make_shape_tuple(shape), _name(op.mode).lower(), op.scale), _no_notes()


@rule("DeformablePSROIPooling")
def _deformable_psroi(op: Any, x: Tensor, rois: Tensor, trans: Tensor) -> Sequence[Tensor]:
    return conv._deformable_psroi(
        x, rois, trans, op.no_trans, op.part_size, op.pooled_h, op.pooled_w, op.sample_per_part, op.spatial_scale,
        op.trans_std,
    )  # fmt: skip


@rule("Correlation")
def _correlation(op: Any, a: Tensor, b: Tensor) -> Tensor:
    _only_nchw(op)
    return vision.correlation(
        a, b, op.kernel_size, op.max_displacement, op.stride1, op.stride2, op.pad_size, op.is_multiply
    )


def _warped(op: Any, x: Tensor, mat: Tensor, shape: Any, index: Tensor | None = None) -> Tensor:
    return vision.warp_perspective(
        x, mat, shape, index, _name(op.bmode), op.border_val, _name(op.format), _name(op.imode)
    )


@rule("WarpPerspective")
def _warp_perspective(op: Any, x: Tensor, mat: Tensor, *rest: Tensor) -> Tensor:
    *index, shape = rest
    return _warped(op, x, mat, shape, *index)


def _plane(op: Any, y: Tensor) -> tuple[int, int]:
    """Height and width."""
    sizes = y.shape[1:3] if _name(op.format) == "NHWC" else y.shape[2:4]
    return sizes[0], sizes[1]


@rule("WarpPerspectiveBackwardData")
def _warp_backward_data(op: Any, mat: Tensor, dy: Tensor, x: Tensor) -> Tensor:
    return pullback(lambda v: _warped(op, v, mat, _plane(op, dy)), x, dy)


@rule("WarpPerspectiveBackwardMat")
def _warp_backward_mat(op: Any, x: Tensor, mat: Tensor, dy: Tensor) -> Tensor:
    return pullback(lambda m: _warped(op, x, m, _plane(op, dy)), mat, dy)


@rule("WarpAffine")
def _warp_affine(op: Any, x: Tensor, mat: Tensor, shape: Tensor) -> Tensor:
    args = (_name(op.border_mode), op.border_val, _name(op.format), _name(op.imode))
    return vision.warp_affine(x, mat, shape, *args)


@rule("Remap")
def _remap(op: Any, x: Tensor, place: Tensor) -> Tensor:
    args = (_name(op.border_type), op.scalar, _name(op.imode), "Remap")
    return vision._in_nchw("Remap", x, _name(op.format), lambda v: vision._sample(v, place, *args))


@rule("Resize")
def _resize(op: Any, x: Tensor, shape: Tensor) -> Tensor:
    return vision.resize(x, make_shape_tuple(shape), _name(op.format), _name(op.imode).lower())


@rule("Resize3D")
def _resize3d(op: Any, x: Tensor, shape: Tensor) -> Tensor:
    if _name(op.format) != "NCDHW" or _name(op.imode) != "LINEAR":
        raise NotImplementedError(
            f"Resize3D: needs format NCDHW and imode LINEAR; got {_name(op.format)} and {_name(op.imode)}."
        )
    align = bool(op.align_corners)
    return vision.interpolate(x, size=make_shape_tuple(shape), mode="trilinear", align_corners=align)


RULES["Rotate"] = lambda op, x: vision.rot90(x, bool(op.clockwise))
RULES["Flip"] = lambda op, x: vision.flip(x, bool(op.vertical), bool(op.horizontal))
RULES["CvtColor"] = lambda op, x: vision.cvt_color(x, _name(op.mode))


@rule("GaussianBlur")
def _gaussian_blur(op: Any, x: Tensor) -> Tensor:
    from ...module.vision import GaussianBlur

    size = (op.kernel_height, op.kernel_width)
    blur = GaussianBlur(size, op.sigma_x, op.sigma_y, _name(op.border_mode))
    return ops.transpose(blur(ops.transpose(x, perm=(0, 3, 1, 2))), perm=(0, 2, 3, 1))


@rule("NMSKeep")
def _nms_keep(op: Any, boxes: Tensor) -> Sequence[Tensor]:
    """Of boxes (B, N, 4) sorted by score the kept ones, the last repeated, and how many there are."""
    if boxes.ndim != 3 or boxes.shape[2] != 4:
        raise ValueError(f"NMSKeep: needs boxes (B, N, 4); got {boxes.shape}.")
    scores = F.zeros((boxes.shape[1],), device=boxes.device)  # of equal scores the first is better
    kept, counts = [], []
    for i in range(boxes.shape[0]):
        index, count = ops.nms(
            boxes[i].astype("float32"), scores, iou_thresh=float(op.iou_thresh), max_output=int(op.max_output)
        )
        kept.append(ops.where(index < 0, index.max(), index) if op.max_output else index)
        counts.append(count)
    return F.stack(kept), F.stack(counts)
