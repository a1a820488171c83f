"""Measures of quality."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core._core import ops
from ..core.tensor.indexing import _const
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
    column = ops.expand_dims(target.astype("int32"), axes=(1,))
    own = ops.expand_dims(ops.indexing_one_hot(logits, target.astype("int32"), axis=1), axes=(1,))
    classes = _const(np.arange(logits.shape[1]).reshape(1, -1), logits)
    ties = ops.logical_and(ops.eq(logits, own), ops.lt(classes, column))
    better = ops.logical_or(ops.lt(own, logits), ties).astype("int32").sum(axis=1)
    hits = [ops.lt(better, k).astype("float32").mean() for k in ks]
    return hits[0] if len(hits) == 1 else hits
