"""Multi-head attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.tensor.indexing import _filled
from ..core.tensor.utils import ArgumentError
from ..functional import multi_head_attention
from ..tensor import Parameter, Tensor
from ..utils.tuple_function import check_size
from . import init
from .module import Module


class MultiHeadAttention(Module):
    """Attention with several heads on (N, L, E).

    Args:
        embed_dim: the width of query and result.
        num_heads: the number of heads; divides ``embed_dim``.
        attn_dropout: dropout of the attention weights.
        out_dropout: dropout of the result.
        bias: whether projections have a bias.
        add_bias_kv: not supported.
        add_zero_attn: not supported.
        kdim: the width of keys; None is ``embed_dim``.
        vdim: the width of values; None is ``embed_dim``.

    >>> m = M.MultiHeadAttention(4, 2)
    >>> x = F.ones((1, 3, 4))
    >>> m(x, x, x)[0].shape
    (1, 3, 4)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        attn_dropout: float = 0.0,
        out_dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        assert not add_bias_kv, "MultiHeadAttention: add_bias_kv is not supported."
        assert not add_zero_attn, "MultiHeadAttention: add_zero_attn is not supported."
        check_size("MultiHeadAttention: num_heads", num_heads)
        if embed_dim % num_heads != 0:
            raise ArgumentError(f"MultiHeadAttention: num_heads={num_heads} heads do not divide embed_dim={embed_dim}.")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.add_bias_kv = add_bias_kv
        self.add_zero_attn = add_zero_attn
        self.bias_k = self.bias_v = None
        self.attn_dropout = attn_dropout
        self.out_dropout = out_dropout
        self.bias = bias
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.weight_bias_len = self._weight_len() + (4 * embed_dim if bias else 0)
        self.io_weight_bias = Parameter(np.zeros((1, self.weight_bias_len), dtype=np.float32))
        self.reset_parameters()

    def _weight_len(self) -> int:
        return (2 * self.embed_dim + self.kdim + self.vdim) * self.embed_dim

    def reset_parameters(self) -> None:
        """Xavier numbers for the projections; biases are 0."""
        init.xavier_uniform_(self.io_weight_bias)
        if self.bias:
            tail = _filled((1, 4 * self.embed_dim), 0.0, "float32", self.io_weight_bias)
            self.io_weight_bias[:, self._weight_len() :] = tail

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
        average_attn_weights: bool = False,
        is_causal: bool = False,
        maybe_cudnn_style_mask: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        return multi_head_attention(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.attn_dropout,
            self.out_dropout,
            self.io_weight_bias,
            qbias=self.bias,
            kbias=self.bias,
            vbias=self.bias,
            obias=self.bias,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            need_weights=need_weights,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            maybe_cudnn_style_mask=maybe_cudnn_style_mask,
            training=self.training,
        )

    def _module_info_string(self) -> str:
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, dropout={self.attn_dropout}, bias={self.bias}, "
            f"kdim={self.kdim}, vdim={self.vdim}"
        )
