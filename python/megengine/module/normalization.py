"""Normalisation within one sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor.utils import ArgumentError, make_shape_tuple
from ..functional import general_norm, group_norm, instance_norm, layer_norm
from ..tensor import Parameter, Tensor
from ..utils.tuple_function import check_size
from . import init
from .module import Module, _shape_of

__all__ = ["GeneralNorm", "GroupNorm", "InstanceNorm", "LayerNorm"]


class _Norm(Module):
    """Scale and shift of a given shape."""

    weight: Parameter | None
    bias: Parameter | None

    def _make_affine(self, affine: bool, shape: tuple[int, ...]) -> None:
        self.affine = affine
        self.weight = Parameter(np.ones(shape, dtype=np.float32)) if affine else None
        self.bias = Parameter(np.zeros(shape, dtype=np.float32)) if affine else None

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        shape, channels = _shape_of(inputs), getattr(self, "num_channels", None)
        if shape is None or channels is None or len(shape) < 2 or shape[1] == channels:
            return None
        return f"the input {shape} has {shape[1]} channels on axis 1, but num_channels={channels}."

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None and self.bias is not None:
            init.ones_(self.weight)
            init.zeros_(self.bias)


class GroupNorm(_Norm):
    """Normalises groups of channels of (N, C, H, W).

    >>> M.GroupNorm(2, 4)(F.ones((1, 4, 2, 2))).shape
    (1, 4, 2, 2)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_size("GroupNorm: num_groups", num_groups)
        if num_channels % num_groups != 0:
            raise ArgumentError(
                f"GroupNorm: num_channels must be divisible by num_groups; got num_channels={num_channels} channels, "
                f"num_groups={num_groups} groups."
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self._make_affine(affine, (num_channels,))

    def _flat_state(self) -> bool:
        return True

    def forward(self, x: Tensor) -> Tensor:
        return group_norm(x, self.num_groups, self.affine, self.weight, self.bias, self.eps)

    def _module_info_string(self) -> str:
        return f"groups={self.num_groups}, channels={self.num_channels}, eps={self.eps}, affine={self.affine}"


class InstanceNorm(_Norm):
    """Normalises every channel of every image of (N, C, H, W) by itself.

    >>> M.InstanceNorm(4)(F.ones((1, 4, 2, 2))).shape
    (1, 4, 2, 2)
    """

    def __init__(self, num_channels: int, eps: float = 1e-5, affine: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_channels = num_channels
        self.eps = eps
        self._make_affine(affine, (num_channels,))

    def _flat_state(self) -> bool:
        return True

    def forward(self, x: Tensor) -> Tensor:
        return instance_norm(x, self.affine, self.weight, self.bias, self.eps)

    def _module_info_string(self) -> str:
        return f"channels={self.num_channels}, eps={self.eps}, affine={self.affine}"


class LayerNorm(_Norm):
    """Normalises over the last axes.

    >>> M.LayerNorm(4)(F.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, affine: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.normalized_shape = make_shape_tuple(normalized_shape)
        self.eps = eps
        self._make_affine(affine, self.normalized_shape)

    def _flat_state(self) -> bool:
        return True

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        shape, want = _shape_of(inputs), self.normalized_shape
        if shape is None or shape[len(shape) - len(want) :] == want:
            return None
        return f"the last sizes of the input {shape} must be normalized_shape={want}."

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.normalized_shape, self.affine, self.weight, self.bias, self.eps)

    def _module_info_string(self) -> str:
        return f"normalized_shape={self.normalized_shape}, eps={self.eps}, affine={self.affine}"


class GeneralNorm(_Norm):
    """Normalises over any axes.

    >>> M.GeneralNorm((3,), (1,))(F.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int] | None = None,
        normalized_axis: int | Sequence[int] = 0,
        eps: float = 1e-5,
        affine: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.normalized_axis = normalized_axis  # both as they were given: ``repr`` and programs look at them
        self.normalized_shape = normalized_shape
        self.eps = eps
        sizes = None if normalized_shape is None else make_shape_tuple(normalized_shape)
        if affine:
            axes = make_shape_tuple(normalized_axis)
            assert sizes is not None and len(sizes) == len(axes), (
                f"GeneralNorm: affine needs one size per axis; got sizes {sizes} and axes {axes}."
            )
        self._make_affine(affine, sizes or ())

    def forward(self, x: Tensor) -> Tensor:
        return general_norm(x, make_shape_tuple(self.normalized_axis), self.affine, self.weight, self.bias, self.eps)

    def _module_info_string(self) -> str:
        return (
            f"normalized_shape={self.normalized_shape}, normalized_axis={self.normalized_axis}, "
            f"eps={self.eps}, affine={self.affine}"
        )
