"""Measures of quality."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core._core import UserError, ops
from ..tensor import Tensor

__all__ = ["topk_accuracy"]


def topk_accuracy(logits: Tensor, target: Tensor, topk: int | Iterable[int] = 1) -> Any:
    """How often the right class is among the ``k`` best.

    Args:
        logits: (N, C).
        target: class numbers, (N,).
        topk: one or several k.

    Returns:
        A number from 0 to 1 as a 0-d tensor; a list of them for several k. Of equal logits the first class is better.

    >>> F.topk_accuracy(mge.tensor([[0.1, 0.9], [0.8, 0.2]]), mge.tensor([1, 1])).item()
    0.5
    """
    ks = [topk] if isinstance(topk, int) else [int(k) for k in topk]
    if logits.ndim != 2:
        raise ValueError(f"topk_accuracy: logits need 2 dimensions (N, C); got {logits.shape}.")
    if not ks or min(ks) < 1 or max(ks) > logits.shape[1]:
        raise UserError(f"topk_accuracy: k must be from 1 to the number of classes; got {ks} for {logits.shape}.")
    best = ops.topk(logits, k=max(ks), axis=1)[1]
    narrow = target.dtype.kind in "iub" and target.dtype.itemsize < 4  # others are compared as they are
    wanted = ops.expand_dims(target.astype("int32") if narrow else target, axes=(1,))
    hit = ops.eq(best, wanted).astype("float32")
    hits = [hit[:, :k].sum(axis=1).mean() for k in ks]
    return hits[0] if len(hits) == 1 else hits
