"""Names of the original's private module that programs import: constants of one element.

>>> from megengine.functional.tensor_cache import get_scalar_one
>>> get_scalar_one("float32", "cpu0").item()
1.0
"""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor

__all__ = ["get_scalar_one", "get_scalar_two", "get_scalar_zero", "get_scalar_zero_point_five"]


def _constant(value: float, dtype: Any, device: Any) -> Tensor:
    return Tensor(value, dtype=dtype, device=device, is_const=True)


def get_scalar_zero(dtype: Any, device: Any) -> Tensor:
    """0."""
    return _constant(0, dtype, device)


def get_scalar_zero_point_five(dtype: Any, device: Any) -> Tensor:
    """0.5."""
    return _constant(0.5, dtype, device)


def get_scalar_one(dtype: Any, device: Any) -> Tensor:
    """1."""
    return _constant(1, dtype, device)


def get_scalar_two(dtype: Any, device: Any) -> Tensor:
    """2."""
    return _constant(2, dtype, device)
