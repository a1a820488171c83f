"""Losses. Every one takes ``reduction``: ``"mean"``, ``"sum"`` or ``"none"``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..core._core import OpIndexError, TensorBase, UserError, is_tracing, ops
from ..core._habits import unexpected
from ..core._warn import warn_once
from ..core.tensor.utils import ArgumentError, _normalize_axis, as_index
from ..tensor import Tensor

__all__ = ["binary_cross_entropy", "cross_entropy", "ctc_loss", "hinge_loss", "l1_loss", "square_loss"]


def _reduce(loss: Tensor, reduction: str, who: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise ValueError(f"{who}: reduction must be mean, sum or none; got {reduction!r}.")


def _reduce_output(loss_fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss that takes ``reduction`` (mean, sum or none) of one that gives an element each; programs import it.

    >>> from megengine.functional.loss import _reduce_output
    >>> @_reduce_output
    ... def cubic(pred, label):
    ...     return abs(pred - label) ** 3
    >>> cubic(mge.tensor([1.0, 2.0]), mge.tensor([0.0, 0.0]), reduction="sum").item()
    9.0
    """

    @functools.wraps(loss_fn)
    def reduced(*args: Any, reduction: str = "mean", **kwargs: Any) -> Tensor:
        return _reduce(loss_fn(*args, **kwargs), reduction, loss_fn.__name__)

    return reduced


def _tell_if_more(who: str, pred: Tensor, label: Tensor, diff: Tensor) -> None:
    """A word about shapes that broadcast to more elements than either has: hardly ever meant."""
    if is_tracing():  # a look at sizes would tie the recording to them
        return
    count = diff.size
    if count > pred.size and count > label.size:
        warn_once(
            who,
            f"{who}: pred {pred.shape} and label {label.shape} broadcast to {diff.shape}, every prediction against "
            "every label. reshape one to the shape of the other, for example label.reshape(pred.shape).",
        )


def _real(pred: Tensor) -> Tensor:
    """Integers as float32: their differences and products wrap."""
    return pred.astype("float32") if isinstance(pred, TensorBase) and pred.dtype.kind in "iu" else pred


def l1_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """|pred - label|.

    >>> F.loss.l1_loss(mge.tensor([3.0, 1.0]), mge.tensor([1.0, 1.0])).item()
    1.0
    """
    diff = _real(pred) - label
    if type(label) is Tensor and label.ndim != pred.ndim:  # as (N, 1) against (N,)
        _tell_if_more("l1_loss", pred, label, diff)
    return _reduce(ops.abs(diff), reduction, "l1_loss")


def square_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """(pred - label) ** 2.

    >>> F.loss.square_loss(mge.tensor([3.0, 1.0]), mge.tensor([1.0, 1.0])).item()
    2.0
    """
    diff = _real(pred) - label
    if type(label) is Tensor and label.ndim != pred.ndim:  # as (N, 1) against (N,)
        _tell_if_more("square_loss", pred, label, diff)
    return _reduce(ops.square(diff), reduction, "square_loss")


def cross_entropy(
    pred: Tensor,
    label: Any,
    axis: int = 1,
    with_logits: bool = True,
    label_smooth: float = 0,
    reduction: str = "mean",
    **other: NoReturn,
) -> Tensor:
    """-log of the probability of the right class.

    Args:
        pred: logits, or probabilities, with the classes along ``axis``.
        label: class numbers, shaped like ``pred`` without ``axis``.
        axis: the axis of the classes.
        with_logits: whether ``pred`` are logits.
        label_smooth: the part of the target that is spread evenly over all classes.
        reduction: mean, sum or none.

    >>> F.loss.cross_entropy(mge.tensor([[0.0, 0.0]]), mge.tensor([1])).numpy()
    array(0.6931472, dtype=float32)
    """
    if other:
        raise unexpected("cross_entropy", other, cross_entropy)
    if not isinstance(pred, TensorBase):
        way = " Does forward return its result?" if pred is None else ""
        raise TypeError(f"cross_entropy: pred must be a Tensor; got a {type(pred).__name__}.{way}")
    if not isinstance(label, TensorBase):
        label = Tensor(label, device=pred.device)
    ndim = pred.ndim
    if ndim != label.ndim + 1:
        way = f" F.argmax(label, axis={axis}) makes class numbers." if label.ndim == ndim else ""
        raise ArgumentError(
            f"cross_entropy: label needs one dimension less than pred, whose axis {axis} holds the classes; got pred "
            f"{pred._tuple_shape}, label {label._tuple_shape}.{way}"
        )
    at = axis if 0 <= axis < ndim else _normalize_axis(ndim, axis, False, "cross_entropy")
    if label.dtype != np.int32:
        label = as_index(label, pred.shape[at], "cross_entropy", "label", negative=False)
    if with_logits:
        try:
            loss = ops.softmax_xent(pred, label, axis=at)[0]
        except OpIndexError as e:
            raise OpIndexError(str(e).replace("softmax_xent:", "cross_entropy:", 1)) from None
        except UserError:
            shape = pred._tuple_shape
            want = shape[:at] + shape[at + 1 :]
            if label._tuple_shape == want:
                raise
            raise UserError(
                f"cross_entropy: for pred {shape} with the classes on axis {axis} label must have shape {want}; got "
                f"{label._tuple_shape}."
            ) from None
        if label_smooth:
            # logZ - s * mean(x) - (1 - s) * x[label], with softmax_xent = logZ - x[label]
            spread = -ops.logsoftmax(pred, axis=at).mean(at)
            loss = loss * (1 - label_smooth) + spread * label_smooth
        return _reduce(loss, reduction, "cross_entropy")
    log_p = ops.log(pred)
    picked = ops.indexing_one_hot(log_p, label, axis=at)
    if label_smooth:
        return _reduce(-(picked * (1 - label_smooth) + log_p.mean(at) * label_smooth), reduction, "cross_entropy")
    return _reduce(-picked, reduction, "cross_entropy")


def _in_unit(x: Any, what: str, slack: float, way_out: str) -> Any:
    """``x``, whose elements must lie in 0..1; a trace keeps the check."""
    who = "binary_cross_entropy"
    if isinstance(x, TensorBase):
        return ops.check_range(x, low=0.0 - slack, high=1 + slack, who=who, what=what, way_out=way_out)
    array = np.asarray(x)
    outside = array[(array < -slack) | (array > 1 + slack)]
    if outside.size:
        raise UserError(f"{who}: {what} must lie in {0.0 - slack}..{1 + slack}; got {outside.flat[0]}. {way_out}")
    return x


def binary_cross_entropy(pred: Tensor, label: Any, with_logits: bool = True, reduction: str = "mean") -> Tensor:
    """-(label * log p + (1 - label) * log(1 - p)); ``pred`` are logits unless told otherwise.

    A label, or a ``pred`` that is no logit, outside 0..1 is an error.

    >>> F.loss.binary_cross_entropy(mge.tensor([0.0]), mge.tensor([1.0])).numpy()
    array(0.6931472, dtype=float32)
    """
    label = _in_unit(label, "label", 1e-4, "It is the probability of yes.")
    if with_logits:
        yes, no = ops.logsigmoid(pred), ops.logsigmoid(-pred)
    else:
        pred = _in_unit(pred, "pred", 0.0, "For logits, leave with_logits=True.")
        yes, no = ops.log(pred), ops.log(1 - pred)
    return _reduce(-(yes * label + no * (1 - label)), reduction, "binary_cross_entropy")


def hinge_loss(pred: Tensor, label: Tensor, norm: str = "L1", reduction: str = "mean") -> Tensor:
    """relu(1 - pred * label), squared with norm ``"L2"``, summed over axis 1; labels are 1 and -1.

    >>> F.loss.hinge_loss(mge.tensor([[0.5, -0.5]]), mge.tensor([[1, -1]])).item()
    1.0
    """
    kind = norm.upper()
    assert kind in ("L1", "L2"), f"hinge_loss: norm must be L1 or L2; got {norm!r}."
    margin = ops.relu(1.0 - _real(pred) * label)
    return _reduce((margin if kind == "L1" else ops.square(margin)).sum(axis=1), reduction, "hinge_loss")


def ctc_loss(
    pred: Tensor,
    pred_lengths: Tensor,
    label: Tensor,
    label_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
) -> Tensor:
    """The connectionist temporal classification loss: -log of the probability that ``pred`` spells the labels.

    Args:
        pred: (T, N, C), probabilities (not logarithms) of the classes at each step.
        pred_lengths: (N,), steps that count of each sequence.
        label: (N, S), or all labels in one row; classes other than ``blank``.
        label_lengths: (N,), labels that count of each sequence.
        blank: the class that stands for nothing.
        reduction: ``"mean"`` of the losses divided by their label lengths, ``"sum"`` or ``"none"``.

    >>> pred = mge.tensor([[[0.4, 0.6]], [[0.5, 0.5]]])
    >>> one = mge.tensor([1])
    >>> round(F.loss.ctc_loss(pred, mge.tensor([2]), one.reshape(1, 1), one).item(), 4)
    0.2231
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"ctc_loss: reduction must be mean, sum or none; got {reduction!r}.")
    classes = pred.shape[-1]
    assert 0 <= blank < classes, f"ctc_loss: blank must be a class of 0..{classes - 1}; got {blank}."
    most = pred.shape[0] + 1  # steps; the op says more of what is wrong with int32
    steps = as_index(pred_lengths, most, "ctc_loss", "pred_lengths", negative=False)
    lengths = as_index(label_lengths, label.shape[-1] + 1, "ctc_loss", "label_lengths", negative=False)
    labels = as_index(label, classes, "ctc_loss", "label", negative=False)
    loss = ops.ctc_loss(pred, steps, labels, lengths, blank=int(blank))
    if reduction == "mean":
        loss = loss / ops.maximum(lengths, 1).astype(loss.dtype)
    return _reduce(loss, reduction, "ctc_loss")


# ---- helpers of labels in a row, which programs import


def _gen_repeat_idx(inp: Tensor) -> Tensor:
    """Each place as often as it counts.

    >>> from megengine.functional.loss import _gen_repeat_idx
    >>> _gen_repeat_idx(mge.tensor([2, 3, 1])).tolist()
    [0, 0, 1, 1, 1, 2]
    """
    counts = inp.numpy()
    return Tensor(np.repeat(np.arange(counts.size, dtype="int32"), counts), device=inp.device)


def _gen_tile_idx(inp: Tensor) -> Tensor:
    """The numbers below each count, one after the other.

    >>> from megengine.functional.loss import _gen_tile_idx
    >>> _gen_tile_idx(mge.tensor([2, 3, 1])).tolist()
    [0, 1, 0, 1, 2, 0]
    """
    counts = inp.numpy()
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    return Tensor((np.arange(begins.size) - begins).astype("int32"), device=inp.device)


def _expand_label(label: Tensor, label_lengths: Tensor, blank: int) -> Tensor:
    """Labels with blanks around each: of a matrix all, of a vector as many as the lengths say.

    >>> from megengine.functional.loss import _expand_label
    >>> _expand_label(mge.tensor([1, 2, 3]), mge.tensor([2, 1]), 0).tolist()
    [[0, 1, 0, 2, 0], [0, 3, 0, 0, 0]]
    """
    values, lengths = label.numpy(), label_lengths.numpy()
    longest = values.shape[1] if values.ndim == 2 else int(np.max(lengths, initial=0))
    out = np.full((lengths.size, 2 * longest + 1), blank, values.dtype)
    if values.ndim == 2:
        out[:, 1::2] = values
    else:
        rows, places = (i.numpy() for i in (_gen_repeat_idx(label_lengths), _gen_tile_idx(label_lengths)))
        out[rows, 2 * places + 1] = values[: rows.size]
    return Tensor(out, device=label.device)
