"""Multi-head attention, composed from products and softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core._core import is_tracing, ops
from ..core.tensor.indexing import _filled, _iota
from ..tensor import Tensor

__all__ = ["multi_head_attention"]


def _empty(x: Tensor) -> bool:
    return not is_tracing() and 0 in x._tuple_shape  # a trace is for all sizes


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """(N, L, E) to (N, heads, L, E / heads)."""
    n, length, size = x.shape
    each = size // num_heads if _empty(x) else -1  # which could be anything beside a 0
    return ops.transpose(x.reshape(n, length, num_heads, each), perm=(0, 2, 1, 3))


def _additive(mask: Tensor, shape: Any) -> Tensor:
    """A mask to add to the scores: True becomes -inf, floats stay."""
    if mask.dtype == np.bool_:
        mask = ops.where(mask, float("-inf"), _filled(mask.shape, 0.0, "float32", mask))
    return mask.reshape(shape)


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_heads: int,
    attn_drop: float,
    out_drop: float,
    io_weight_bias: Tensor | None,
    qproj_size: int | None = None,
    kproj_size: int | None = None,
    vproj_size: int | None = None,
    oproj_size: int | None = None,
    qbias: bool = False,
    kbias: bool = False,
    vbias: bool = False,
    obias: bool = False,
    bias_k: Tensor | None = None,
    bias_v: Tensor | None = None,
    add_zero_attn: bool = False,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    need_weights: bool = False,
    average_attn_weights: bool = False,
    is_causal: bool = False,
    maybe_cudnn_style_mask: bool = False,
    reslink: bool = False,
    training: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q K^T / sqrt(head size)) V for several heads, between input and output projections.

    Args:
        query: (N, L, Eq).
        key: (N, S, Ek).
        value: (N, S, Ev).
        embed_dim: the width inside; a multiple of ``num_heads``.
        num_heads: the number of heads.
        attn_drop: dropout of the attention weights.
        out_drop: dropout of the result.
        io_weight_bias: all projections in one vector: Wq, Wk, Wv, Wo (each in x out), then bq, bk, bv, bo.
        qproj_size: the width of the projected query; None is ``embed_dim``, 0 means no projection.
        kproj_size: the same for the key.
        vproj_size: the same for the value.
        oproj_size: the same for the output.
        qbias: whether the vector holds bq.
        kbias: whether the vector holds bk.
        vbias: whether the vector holds bv.
        obias: whether the vector holds bo.
        bias_k: not supported.
        bias_v: not supported.
        add_zero_attn: not supported.
        key_padding_mask: (N, S); True, or -inf, hides a key.
        attn_mask: (L, S) or (N * heads, L, S); True hides, floats are added to the scores.
        need_weights: also return the attention weights.
        average_attn_weights: return their mean over the heads, (N, L, S), not (N * heads, L, S).
        is_causal: without masks, let a position see only earlier ones.
        maybe_cudnn_style_mask: accepted; masks are always as described.
        reslink: not supported.
        training: apply dropout.

    Returns:
        The result (N, L, E) and the weights, or None.

    >>> x = F.ones((1, 2, 4))
    >>> y, w = F.multi_head_attention(x, x, x, 4, 2, 0.0, 0.0, None, 0, 0, 0, 0)
    >>> y.shape, w is None
    ((1, 2, 4), True)
    """
    from .nn import dropout  # nn re-exports this function

    assert bias_k is None and bias_v is None, "multi_head_attention: bias_k and bias_v are not supported."
    assert not add_zero_attn, "multi_head_attention: add_zero_attn is not supported."
    assert not reslink, "multi_head_attention: reslink is not supported."
    sizes = [embed_dim if s is None else s for s in (qproj_size, kproj_size, vproj_size, oproj_size)]
    head_dim = embed_dim // num_heads if sizes[0] else embed_dim
    if attn_mask is None and is_causal and key_padding_mask is None:
        attn_mask = _causal(query, key)
    out, attention = _attend(
        query,
        key,
        value,
        num_heads,
        io_weight_bias,
        sizes,
        (qbias, kbias, vbias, obias),
        float(head_dim) ** -0.5,
        key_padding_mask,
        attn_mask,
        lambda x: dropout(x, attn_drop, training),
        lambda x: dropout(x, out_drop, training),
    )
    if not need_weights:
        return out, None
    if average_attn_weights:
        return out, attention.mean(axis=1)
    n, _, length, source = attention.shape
    return out, attention.reshape(n * num_heads, length, source)


def _causal(query: Tensor, key: Tensor) -> Tensor:
    """A mask that lets a position see only earlier ones and itself."""
    rows, columns = _iota(query.shape[1], query), _iota(key.shape[1], query)
    later = ops.lt(ops.expand_dims(rows, axes=(1,)), columns)
    return _additive(later, later.shape)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    num_heads: int,
    io_weight_bias: Tensor | None,
    sizes: Sequence[int],
    with_bias: Sequence[bool],
    scale: float,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    drop_weights: Callable[[Tensor], Tensor],
    drop_result: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """The result and the weights (N, heads, L, S); ``sizes`` and ``with_bias`` are those of q, k, v and the output."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 3:
            raise ValueError(f"multi_head_attention: {name} needs 3 dimensions (N, L, E); got {x.shape}.")
    widths = [int(x.shape[-1]) for x in (query, key, value)]  # they decide where the weights lie
    inputs = [*widths, sizes[2] or widths[2]]
    flat = None if io_weight_bias is None else io_weight_bias.reshape(-1)
    at = 0

    def take(count: int) -> Tensor:
        nonlocal at
        if flat is None or at + count > flat.shape[0]:
            held = 0 if flat is None else flat.shape[0]
            raise ValueError(
                f"multi_head_attention: io_weight_bias holds {held} numbers, fewer than the projections need."
            )
        at += count
        return flat[at - count : at]

    weights = [take(i * o).reshape(i, o) if o else None for i, o in zip(inputs, sizes)]
    biases = [take(o) if b and o else None for b, o in zip(with_bias, sizes)]

    def project(x: Tensor, i: int) -> Tensor:
        w, b = weights[i], biases[i]
        y = x if w is None else ops.matmul(x, w)
        return y if b is None else y + b

    q, k, v = (_heads(project(x, i), num_heads) for i, x in enumerate((query, key, value)))
    n, _, length, _ = q.shape
    source = k.shape[2]
    scores = ops.matmul(q * scale, k, tb=True)
    if key_padding_mask is not None:
        scores = scores + _additive(key_padding_mask, (n, 1, 1, source))
    if attn_mask is not None:
        per_head = attn_mask.ndim == 3
        shape = (n, num_heads, length, source) if per_head else (1, 1, length, source)
        scores = scores + _additive(attn_mask, shape)
    attention = ops.softmax(scores, axis=3)
    joined = ops.transpose(ops.matmul(drop_weights(attention), v), perm=(0, 2, 1, 3))
    joined = joined.reshape(n, length, num_heads * v.shape[3] if _empty(joined) else -1)
    return drop_result(project(joined, 3)), attention
