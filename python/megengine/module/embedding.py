"""Lookup tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functional import embedding
from ..tensor import Parameter, Tensor
from ..utils.tuple_function import check_size
from . import init
from .module import Module


class Embedding(Module):
    """A table of vectors, looked up by number.

    Args:
        num_embeddings: the number of vectors.
        embedding_dim: their length.
        padding_idx: not supported.
        max_norm: not supported.
        norm_type: not supported.
        initial_weight: the table to start with.
        freeze: do not train the table.

    >>> M.Embedding(5, 3)(mge.tensor([[0, 4]])).shape
    (1, 2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float | None = None,
        initial_weight: Tensor | None = None,
        freeze: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if padding_idx is not None:
            raise ValueError("Embedding: padding_idx is not supported.")
        if max_norm is not None or norm_type is not None:
            raise ValueError("Embedding: max_norm and norm_type are not supported.")
        for name, size in (("num_embeddings", num_embeddings), ("embedding_dim", embedding_dim)):
            check_size(f"Embedding: {name}", size, 0)
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.freeze = freeze
        if initial_weight is None:
            self.weight = Parameter(np.zeros((num_embeddings, embedding_dim), dtype=np.float32))
            self.reset_parameters()
        else:
            if tuple(initial_weight.shape) != (num_embeddings, embedding_dim):
                raise ValueError(
                    f"Embedding: initial_weight must have shape {(num_embeddings, embedding_dim)}; "
                    f"got {tuple(initial_weight.shape)}."
                )
            self.weight = Parameter(initial_weight)

    def reset_parameters(self) -> None:
        """Normal numbers with variance 1."""
        init.normal_(self.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        return embedding(inputs, self.weight.detach() if self.freeze else self.weight)

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        if not isinstance(error, IndexError):
            return None
        n = self.num_embeddings
        return f"num_embeddings={n}, so indices must be below {n}: {error}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float | None = None,
    ) -> Embedding:
        """A layer with a given table of shape (number, length).

        >>> M.Embedding.from_pretrained(mge.tensor([[1.0, 2.0]]))(mge.tensor([0])).tolist()
        [[1.0, 2.0]]
        """
        shape = embeddings.shape
        if len(shape) != 2:
            raise ValueError(f"Embedding.from_pretrained: needs 2 dimensions; got shape {shape}.")
        return cls(
            shape[0],
            shape[1],
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            initial_weight=embeddings,
            freeze=freeze,
        )
