"""Modules that hold programs compiled for the runtimes of accelerators.

They can be made, saved and loaded anywhere; calling one raises, for none of the runtimes is part of this build.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..functional import external
from ..tensor import Tensor
from .module import Module

__all__ = [
    "AtlasRuntimeSubgraph",
    "CambriconRuntimeSubgraph",
    "ExternOprSubgraph",
    "MagicMindRuntimeSubgraph",
    "TensorrtRuntimeSubgraph",
]


class _Program(Module):
    """Holds the bytes of a program."""

    def __init__(self, data: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._data = data

    @property
    def data(self) -> Any:
        """The program; bytes that are assigned are kept as an array."""
        return self._data

    @data.setter
    def data(self, val: bytes) -> None:
        self._data = np.frombuffer(val, dtype=np.uint8)


class TensorrtRuntimeSubgraph(_Program):
    """A TensorRT engine; without data it gives None.

    >>> from megengine.module.external import TensorrtRuntimeSubgraph
    >>> TensorrtRuntimeSubgraph(None)() is None
    True
    """

    def forward(self, *inputs: Tensor) -> list[Tensor] | None:
        return external.tensorrt_runtime_opr(inputs, data=self._data)


class CambriconRuntimeSubgraph(_Program):
    """A program for Cambricon's runtime: the function ``symbol`` in ``data``."""

    def __init__(self, data: Any, symbol: str, tensor_dim_mutable: bool, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.symbol = symbol
        self.tensor_dim_mutable = tensor_dim_mutable

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        return external.cambricon_runtime_opr(inputs, self._data, self.symbol, self.tensor_dim_mutable)


class AtlasRuntimeSubgraph(_Program):
    """A model for Atlas (Ascend)."""

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        return external.atlas_runtime_opr(inputs, self._data)


class MagicMindRuntimeSubgraph(_Program):
    """A model for Cambricon's MagicMind."""

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        return external.magicmind_runtime_opr(inputs, self._data)


class ExternOprSubgraph(Module):
    """A program that a loader of the deployed model brings along.

    Args:
        output_shapes: the shapes of its results.
        dump_name: the name of the loader, and of the module.
        dump_data: what the loader gets.
        output_dtypes: the dtypes of its results; float32 unless given.
    """

    def __init__(
        self,
        output_shapes: Sequence[tuple[int, ...]],
        dump_name: str,
        dump_data: Any,
        output_dtypes: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._dump_name = dump_name
        self._dump_data = dump_data
        self._output_shapes = output_shapes
        self._output_dtypes = [np.float32] * len(output_shapes) if output_dtypes is None else output_dtypes

    @property
    def data(self) -> Any:
        """What the loader gets; bytes that are assigned are kept as an array."""
        return self._dump_data

    @data.setter
    def data(self, val: bytes) -> None:
        self._dump_data = np.frombuffer(val, dtype=np.uint8)

    @property
    def name(self) -> Any:
        """The name of the loader."""
        return self._dump_name

    @name.setter
    def name(self, val: Any) -> None:
        self._dump_name = val

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        return external.extern_opr_subgraph(
            inputs, self._output_shapes, self._dump_name, self._dump_data, self._output_dtypes
        )
