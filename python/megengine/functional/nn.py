"""Neural-network functions. Images are NCHW. Losses, metrics and vision functions can be reached from here too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ..core import _amp
from ..core._core import OpIndexError, UserError, ops
from ..core._habits import unexpected
from ..core.tensor.indexing import _iota
from ..core.tensor.utils import ArgumentError, _normalize_axis, as_index, is_fixed, make_shape_tuple
from ..random.rng import _global_state
from ..tensor import Tensor
from .attention import multi_head_attention
from .conv import (
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
    avg_pool2d,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose2d,
    conv_transpose3d,
    deformable_conv2d,
    deformable_psroi_pooling,
    local_conv2d,
    max_pool2d,
    pad,
    region_restricted_conv,
    sliding_window,
    sliding_window_transpose,
)
from .loss import binary_cross_entropy as binary_cross_entropy
from .loss import cross_entropy as cross_entropy
from .loss import ctc_loss as ctc_loss
from .loss import hinge_loss as hinge_loss
from .loss import l1_loss as l1_loss
from .loss import square_loss as square_loss
from .math import matmul, normalize
from .metric import topk_accuracy as topk_accuracy
from .normalization import (
    batch_norm,
    general_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    sync_batch_norm,
)
from .vision import correlation as correlation
from .vision import cvt_color as cvt_color
from .vision import flip as flip
from .vision import interpolate as interpolate
from .vision import nms as nms
from .vision import nvof as nvof
from .vision import remap, warp_affine, warp_perspective
from .vision import resize as resize
from .vision import roi_align as roi_align
from .vision import roi_pooling as roi_pooling
from .vision import rot90 as rot90
from .vision import rotate as rotate

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "avg_pool2d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "conv_transpose3d",
    "deformable_conv2d",
    "deformable_psroi_pooling",
    "dropout",
    "embedding",
    "gelu",
    "general_norm",
    "group_norm",
    "hsigmoid",
    "hswish",
    "indexing_one_hot",
    "instance_norm",
    "layer_norm",
    "leaky_relu",
    "linear",
    "local_conv2d",
    "local_response_norm",
    "logsigmoid",
    "logsoftmax",
    "logsumexp",
    "max_pool2d",
    "multi_head_attention",
    "normalize",
    "one_hot",
    "pad",
    "pixel_shuffle",
    "prelu",
    "region_restricted_conv",
    "relu",
    "relu6",
    "remap",
    "sigmoid",
    "silu",
    "sliding_window",
    "sliding_window_transpose",
    "softmax",
    "softplus",
    "sync_batch_norm",
    "warp_affine",
    "warp_perspective",
]


# ---- activations


def relu(x: Tensor) -> Tensor:
    """max(x, 0).

    >>> F.relu(mge.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return ops.relu(x)


def relu6(x: Tensor) -> Tensor:
    """x kept between 0 and 6.

    >>> F.relu6(mge.tensor([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    return ops.relu6(x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    >>> F.sigmoid(mge.tensor([0.0])).tolist()
    [0.5]
    """
    return ops.sigmoid(x)


def hsigmoid(x: Tensor) -> Tensor:
    """relu6(x + 3) / 6.

    >>> F.hsigmoid(mge.tensor([-4.0, 0.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return ops.hsigmoid(x)


def hswish(x: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6.

    >>> F.hswish(mge.tensor([0.0, 4.0])).tolist()
    [0.0, 4.0]
    """
    return ops.hswish(x)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x).

    >>> F.silu(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.silu(x)


def gelu(x: Tensor) -> Tensor:
    """x times the normal distribution function of x, exact.

    >>> F.gelu(mge.tensor([0.0])).tolist()
    [0.0]
    """
    return ops.gelu(x)


def softplus(inp: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow.

    >>> F.softplus(mge.tensor([-1000.0, 1000.0])).tolist()
    [0.0, 1000.0]
    """
    return ops.softplus(inp)


def logsigmoid(inp: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow.

    >>> F.logsigmoid(mge.tensor([-1000.0])).tolist()
    [-1000.0]
    """
    return ops.logsigmoid(inp)


def prelu(x: Tensor, y: Tensor) -> Tensor:
    """x where it is above 0, else x * y; a weight per channel has shape (1, C, 1, 1).

    >>> F.prelu(mge.tensor([-2.0, 3.0]), mge.tensor([0.5])).tolist()
    [-1.0, 3.0]
    """
    return ops.prelu(x, y)  # 0 counts as above: its gradient is that of x


def leaky_relu(inp: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where it is above 0, else x * negative_slope.

    >>> F.leaky_relu(mge.tensor([-2.0, 3.0]), 0.5).tolist()
    [-1.0, 3.0]
    """
    return ops.prelu(inp, negative_slope)


def softmax(inp: Tensor, axis: int | Sequence[int] | None = None, **other: NoReturn) -> Tensor:
    """exp(x) divided by its sum along ``axis``.

    Args:
        inp: the logits.
        axis: one axis, or several taken together; None is axis 0 for 0, 1 or 3 dimensions, else axis 1.

    >>> F.softmax(mge.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    if other:
        raise unexpected("softmax", other, softmax)
    if axis is None:
        axis = 0 if inp.ndim in (0, 1, 3) else 1
    if isinstance(axis, int):
        try:
            return ops.softmax(inp, axis=axis)
        except UserError:  # rare: looking at ndim first would cost a tenth of a small softmax
            if inp.ndim:
                raise
        return ops.softmax(inp.reshape(1), axis=axis).reshape(())
    shifted = ops.exp(inp - inp.max(axis, keepdims=True))
    return shifted / shifted.sum(axis, keepdims=True)


def logsoftmax(inp: Tensor, axis: int | Sequence[int], **other: NoReturn) -> Tensor:
    """log(softmax(x)), without overflow.

    >>> F.logsoftmax(mge.tensor([1000.0, 0.0]), 0).tolist()
    [0.0, -1000.0]
    """
    if other:
        raise unexpected("logsoftmax", other, logsoftmax)
    if isinstance(axis, int):
        try:
            return ops.logsoftmax(inp, axis=axis)
        except UserError:  # as in softmax
            if inp.ndim:
                raise
        return ops.logsoftmax(inp.reshape(1), axis=axis).reshape(())
    return inp - logsumexp(inp, axis, keepdims=True)


def logsumexp(inp: Tensor, axis: int | Sequence[int], keepdims: bool = False) -> Tensor:
    """log of the sum of exp(x) along ``axis``, without overflow.

    >>> F.logsumexp(mge.tensor([[1000.0, 1000.0]]), 1).numpy().round(1)
    array([1000.7], dtype=float32)
    """
    if inp.dtype.kind in "iub":
        inp = inp.astype("float32")
    top = inp.max(axis, keepdims=True).detach()
    # An infinite maximum would give inf - inf; the sum of exp is then that infinity, or 0, without a shift.
    top = ops.where(ops.isinf(top), ops.fill_like(top, value=0.0), top)
    y = ops.log(ops.exp(inp - top).sum(axis, keepdims=True)) + top
    if keepdims:
        return y
    return ops.squeeze(y, axes=(axis,) if isinstance(axis, int) else make_shape_tuple(axis))


# ---- the rest


def linear(inp: Tensor, weight: Tensor, bias: Tensor | None = None, compute_mode: str = "default") -> Tensor:
    """``inp @ weight.T + bias``; the weight has shape (out, in).

    >>> F.linear(mge.tensor([[1.0, 2.0]]), mge.tensor([[3.0, 4.0]]), mge.tensor([5.0])).tolist()
    [[16.0]]
    """
    try:
        if bias is not None and inp.ndim >= 2 and bias._tuple_shape == weight._tuple_shape[:1]:
            return ops.matmul(inp, weight, bias, tb=True)
        y = ops.matmul(inp, weight, tb=True) if inp.ndim >= 2 else matmul(inp, weight, transpose_b=True)
    except UserError as e:
        raise UserError(str(e).replace("matmul:", "linear: weight is (out, in), taken transposed:", 1)) from None
    if bias is None:
        return y
    return y + (bias.astype(y.dtype) if _amp.enabled() else bias)


def dropout(inp: Tensor, drop_prob: float, training: bool = True) -> Tensor:
    """Zero elements with probability ``drop_prob`` and scale the others by 1 / (1 - drop_prob); only in training.

    >>> F.dropout(F.ones((10,)), 0.5, training=False).tolist() == [1.0] * 10
    True
    """
    if not 0 <= drop_prob < 1:
        raise ArgumentError(f"dropout: drop_prob must be at least 0 and below 1; got {drop_prob}.")
    if not training or drop_prob == 0:
        return inp
    state = _global_state(str(inp.device))
    y, _, new = ops.dropout(inp, state, p=float(drop_prob))
    state._reset(new)
    return y


def one_hot(inp: Tensor, num_classes: int) -> Tensor:
    """1 at the class number along a new last axis and 0 elsewhere, in the dtype of ``inp``.

    >>> F.one_hot(mge.tensor([1, 0]), 3).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    if not isinstance(inp, Tensor):
        raise TypeError(f"one_hot: class numbers must be a Tensor; got a {type(inp).__name__}. Tensor(x) makes one.")
    if inp.dtype.kind not in "iu":
        raise UserError(f"one_hot: class numbers must be integers; got {inp.dtype}. Cast them with astype('int32').")
    (num_classes,) = make_shape_tuple(num_classes)
    if type(num_classes) is int and num_classes < 0:
        raise UserError(f"one_hot: num_classes must be at least 0; got {num_classes}.")
    classes = _iota(num_classes, inp)
    label = ops.wrap_index(inp, size=num_classes, negative=False, who="one_hot")
    return ops.eq(ops.expand_dims(label, axes=(-1,)), classes).astype(inp.dtype)


def embedding(
    inp: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float | None = None,
) -> Tensor:
    """The rows of ``weight`` that ``inp`` names.

    >>> F.embedding(mge.tensor([2, 0]), mge.tensor([[1.0], [2.0], [3.0]])).tolist()
    [[3.0], [1.0]]
    """
    if padding_idx is not None:
        raise ValueError("embedding: padding_idx is not supported.")
    if max_norm is not None or norm_type is not None:
        raise ValueError("embedding: max_norm and norm_type are not supported.")
    if inp.dtype.kind not in "iub":
        raise UserError(f"embedding: indices must be integers; got {inp.dtype}. Cast them with astype('int32').")
    try:
        return ops.take(weight, as_index(inp, weight.shape[0], "embedding"), axis=0)
    except OpIndexError as e:
        raise OpIndexError(str(e).replace("take:", "embedding:", 1)) from None


def indexing_one_hot(src: Tensor, index: Tensor, axis: int = 1, keepdims: bool = False) -> Tensor:
    """The elements at ``index`` along ``axis``; the index has one dimension less than ``src``.

    >>> F.indexing_one_hot(mge.tensor([[1.0, 2.0]]), mge.tensor([1])).tolist()
    [2.0]
    """
    if src.ndim < 2:
        raise UserError(f"indexing_one_hot: the source needs at least 2 dimensions; got {src.shape}.")
    at = _normalize_axis(src.ndim, axis, False, "indexing_one_hot")
    if isinstance(index, (list, tuple)):
        index = Tensor(index, dtype="int32")
    y = ops.indexing_one_hot(src, as_index(index, src.shape[at], "indexing_one_hot", negative=False), axis=at)
    return ops.expand_dims(y, axes=(at,)) if keepdims else y


def pixel_shuffle(inp: Tensor, upscale_factor: int) -> Tensor:
    """Turn channels into resolution: (..., C * r * r, H, W) to (..., C, H * r, W * r).

    >>> F.pixel_shuffle(F.arange(4).reshape(1, 4, 1, 1), 2).tolist()
    [[[[0.0, 1.0], [2.0, 3.0]]]]
    """
    if upscale_factor <= 0:
        raise ArgumentError(f"pixel_shuffle: upscale_factor must be above 0; got {upscale_factor}.")
    if inp.ndim < 3:
        raise ArgumentError(f"pixel_shuffle: the input needs at least 3 dimensions; got {inp.shape}.")
    r = int(upscale_factor)
    *lead, c, h, w = inp.shape
    if is_fixed(c) and c % (r * r):  # otherwise the reshape below says so
        raise UserError(f"pixel_shuffle: {c} channels are not a multiple of {r} * {r}; got {inp.shape}.")
    n = 1
    for d in lead:
        n *= d
    parts = inp.reshape(n, c // (r * r), r, r, h, w)
    return ops.transpose(parts, perm=(0, 1, 4, 2, 5, 3)).reshape(*lead, c // (r * r), h * r, w * r)
