"""Programs compiled for the runtimes of accelerators. None of these runtimes is part of this build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ..tensor import Tensor

__all__ = [
    "atlas_runtime_opr",
    "cambricon_runtime_opr",
    "extern_opr_subgraph",
    "magicmind_runtime_opr",
    "tensorrt_runtime_opr",
]


def _absent(who: str, library: str) -> NoReturn:
    raise NotImplementedError(
        f"{who}: needs {library}, which this build does not have. Run the model in the vendor's runtime, or load its "
        "source model instead of the compiled program."
    )


def tensorrt_runtime_opr(inputs: Sequence[Tensor], *, data: bytes | None = None) -> list[Tensor] | None:
    """Run a TensorRT engine; without data there is nothing to run.

    >>> F.external.tensorrt_runtime_opr([]) is None
    True
    """
    if data is None:
        return None
    _absent("tensorrt_runtime_opr", "TensorRT")


def cambricon_runtime_opr(inputs: Sequence[Tensor], data: bytes, symbol: str, tensor_dim_mutable: bool) -> list[Tensor]:
    """Run a program for Cambricon's runtime."""
    _absent("cambricon_runtime_opr", "Cambricon's CNRT")


def atlas_runtime_opr(inputs: Sequence[Tensor], data: bytes) -> list[Tensor]:
    """Run a model for Atlas (Ascend)."""
    _absent("atlas_runtime_opr", "Ascend's ACL")


def magicmind_runtime_opr(inputs: Sequence[Tensor], data: bytes) -> list[Tensor]:
    """Run a model for Cambricon's MagicMind."""
    _absent("magicmind_runtime_opr", "MagicMind")


def extern_opr_subgraph(
    inputs: Sequence[Tensor],
    output_shapes: Sequence[tuple[int, ...]],
    dump_name: str,
    dump_data: bytes,
    output_dtypes: Sequence[Any],
) -> list[Tensor]:
    """Stand for a program that a loader of the deployed model brings along."""
    _absent("extern_opr_subgraph", f"a loader for {dump_name!r}")
