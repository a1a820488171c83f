"""What the original's op classes on images, cells of recurrent networks and the LAMB step mean; see ``lower``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functional as F
from ...functional import vision
from ...tensor import Tensor
from .._core import UserError, ops
from ..tensor.utils import make_shape_tuple
from .lower import RULES, _rule


def _word(member: Any) -> str:
    """``"linear"`` for ``InterpolationMode.LINEAR``."""
    return str(member).rsplit(".", 1)[-1].lower()


def _layout(op: Any) -> str:
    layout = _word(op.format).upper()
    if layout not in ("NCHW", "NHWC"):
        raise UserError(f"{type(op).__name__}: format must be NCHW or NHWC; got {layout}.")
    return layout


@_rule("Resize")
def _resize(op: Any, x: Tensor, shape: Tensor) -> Tensor:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(_word(op.imode), _word(op.imode))
    return vision.resize(x, make_shape_tuple(shape), _layout(op), mode)


@_rule("Resize3D")
def _resize3d(op: Any, x: Tensor, shape: Tensor) -> Tensor:
    if _word(op.format) != "ncdhw":
        raise UserError(f"Resize3D: only the format NCDHW is there; got {_word(op.format).upper()}.")
    return vision.interpolate(x, make_shape_tuple(shape), mode="trilinear", align_corners=op.align_corners)


@_rule("WarpPerspective")
def _warp_perspective(op: Any, x: Tensor, mat: Tensor, *rest: Tensor) -> Tensor:
    images, shape = (rest[0], rest[1]) if len(rest) == 2 else (None, rest[0])
    return vision.warp_perspective(x, mat, shape, images, _word(op.bmode), op.border_val, _layout(op), _word(op.imode))


@_rule("WarpAffine")
def _warp_affine(op: Any, x: Tensor, mat: Tensor, shape: Tensor) -> Tensor:
    return vision.warp_affine(x, mat, shape, _word(op.border_mode), op.border_val, _layout(op), _word(op.imode))


@_rule("Remap")
def _remap(op: Any, x: Tensor, positions: Tensor) -> Tensor:
    last = _layout(op) == "NHWC"
    image = x.transpose(0, 3, 1, 2) if last else x
    y = vision.remap(image, positions, _word(op.border_type), op.scalar, _word(op.imode))
    return y.transpose(0, 2, 3, 1) if last else y


@_rule("ROIPooling")
def _roi_pooling(op: Any, x: Tensor, rois: Tensor, shape: Tensor) -> Tensor:
    return vision.roi_pooling(x, rois, make_shape_tuple(shape), _word(op.mode), op.scale)


@_rule("ROIAlign")
def _roi_align(op: Any, x: Tensor, rois: Tensor) -> Tensor:
    if op.offset not in (0.0, 0.5):
        raise UserError(f"ROIAlign: offset must be 0 or 0.5; got {op.offset}.")
    size, samples = (op.pooled_height, op.pooled_width), (op.sample_height, op.sample_width)
    return vision.roi_align(x, rois, size, _word(op.mode), op.spatial_scale, samples, op.offset == 0.5)


@_rule("DeformablePSROIPooling")
def _deformable_psroi_pooling(op: Any, x: Tensor, rois: Tensor, trans: Tensor) -> Tensor:
    return F.deformable_psroi_pooling(
        x, rois, trans, op.no_trans, op.part_size, op.pooled_h, op.pooled_w, op.sample_per_part, op.spatial_scale,
        op.trans_std,
    )  # fmt: skip


@_rule("Correlation")
def _correlation(op: Any, a: Tensor, b: Tensor) -> Tensor:
    return vision.correlation(
        a, b, op.kernel_size, op.max_displacement, op.stride1, op.stride2, op.pad_size, op.is_multiply
    )


@_rule("Flip")
def _flip(op: Any, x: Tensor) -> Tensor:
    return vision.flip(x, op.vertical, op.horizontal)


@_rule("Rotate")
def _rotate(op: Any, x: Tensor) -> Tensor:
    return vision.rot90(x, op.clockwise)


RULES["CvtColor"] = lambda op, x: vision.cvt_color(x, str(op.mode).rsplit(".", 1)[-1])


# ---- recurrent cells


def _gates(x: Tensor, w_ih: Tensor, b_ih: Tensor, h: Tensor, w_hh: Tensor, b_hh: Tensor) -> Tensor:
    return F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)


@_rule("RNNCell")
def _rnn_cell(op: Any, *inputs: Tensor) -> Tensor:
    act: dict[str, Callable[[Tensor], Tensor]] = {"identity": F.copy, "relu": F.relu, "tanh": F.tanh}
    return act[_word(op.nonlineMode)](_gates(*inputs))


@_rule("LSTMCell")
def _lstm_cell(op: Any, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    gates = _gates(*inputs[:6])
    i, f, g, o = F.split(gates, 4, axis=1)
    c = F.sigmoid(f) * inputs[6] + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(c), c, gates


# ---- optimizer


@_rule("LAMBUpdate")
def _lamb_update(op: Any, m: Tensor, v: Tensor, param: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    g = grad.astype("float32")
    m = m * op.beta_1 + g * (1.0 - op.beta_1)
    v = v * op.beta_2 + g * g * (1.0 - op.beta_2)
    first, second = (1.0 - b**op.step if op.bias_correction else 1.0 for b in (op.beta_1, op.beta_2))
    ratio = (m / first) / (F.sqrt(v / second) + op.eps)
    if op.weight_decay:
        ratio = ratio + param * op.weight_decay
    if op.always_adapt or op.weight_decay > 0:
        size, step = F.norm(param), F.norm(ratio)
        usable = ops.logical_and(size > 0, step > 0)
        ratio = ratio * ops.where(usable, size / ops.where(usable, step, 1.0), 1.0)
    return m, v, param - ratio * op.lr
