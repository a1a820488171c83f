"""Batch normalisation."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ..distributed.group import WORLD, Group
from ..functional import batch_norm, sync_batch_norm
from ..tensor import Parameter, Tensor
from ..utils.tuple_function import check_size
from . import init
from .module import Module, _shape_of

__all__ = ["BatchNorm1d", "BatchNorm2d", "SyncBatchNorm"]


class _BatchNorm(Module):
    """Normalises every channel over the batch.

    Args:
        num_features: the number of channels.
        eps: added to the variance.
        momentum: the part of the old running statistics that is kept.
        affine: learn a scale and a shift per channel.
        track_running_stats: keep running statistics for evaluation.
        freeze: always use the running statistics, update nothing and pass no gradient to scale and shift.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        freeze: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_size(f"{type(self).__name__}: num_features", num_features)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._track_running_stats_saved = track_running_stats
        self.freeze = freeze
        assert track_running_stats or not freeze, "BatchNorm: freeze=True needs track_running_stats=True."
        shape = (1, num_features, 1, 1)
        self.weight = Parameter(np.ones(shape, dtype=np.float32)) if affine else None
        self.bias = Parameter(np.zeros(shape, dtype=np.float32)) if affine else None
        self.running_mean = Tensor(np.zeros(shape, dtype=np.float32)) if track_running_stats else None
        self.running_var = Tensor(np.ones(shape, dtype=np.float32)) if track_running_stats else None

    @abstractmethod
    def _check_input_ndim(self, inp: Tensor) -> None: ...

    def _misfit(self, inputs: tuple[Any, ...], error: Exception) -> str | None:
        shape = _shape_of(inputs)
        if shape is None or len(shape) < 2 or shape[1] == self.num_features:
            return None
        return f"the input {shape} has {shape[1]} channels on axis 1, but num_features={self.num_features}."

    def _flat_state(self) -> bool:
        return True

    def reset_running_stats(self) -> None:
        """Running mean 0 and variance 1."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, fresh running statistics."""
        self.reset_running_stats()
        if self.weight is not None and self.bias is not None:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def _stats(self) -> tuple[Tensor | None, Tensor | None, bool]:
        """Running mean and variance to use, and whether to normalise by the batch."""
        if not self._track_running_stats_saved:
            assert not self.track_running_stats, (
                "BatchNorm: track_running_stats was False at construction, so there are no running statistics to use."
            )
            return None, None, True
        if not self.track_running_stats:
            return None, None, True
        return self.running_mean, self.running_var, self.training

    def forward(self, inp: Tensor) -> Tensor:
        self._check_input_ndim(inp)
        if self.freeze:
            return self._frozen(inp)
        mean, var, by_batch = self._stats()
        y: Tensor = batch_norm(
            inp, mean, var, self.weight, self.bias, training=by_batch, momentum=self.momentum, eps=self.eps
        )
        return y

    def _frozen(self, inp: Tensor) -> Tensor:
        weight = None if self.weight is None else self.weight.detach()
        bias = None if self.bias is None else self.bias.detach()
        y: Tensor = batch_norm(inp, self.running_mean, self.running_var, weight, bias, training=False, eps=self.eps)
        return y

    def _module_info_string(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L).

    >>> M.BatchNorm1d(2)(F.ones((4, 2))).shape
    (4, 2)
    """

    def _check_input_ndim(self, inp: Tensor) -> None:
        if inp.ndim not in (2, 3):
            way = " BatchNorm2d takes images." if inp.ndim == 4 else ""
            raise ValueError(
                f"BatchNorm1d: expected 2D or 3D input (got {inp.ndim}D input), (N, C) or (N, C, L); got "
                f"{inp.shape}.{way}"
            )


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W).

    >>> bn = M.BatchNorm2d(2)
    >>> bn(F.ones((1, 2, 2, 2))).shape, bn.running_mean.reshape(-1).numpy()
    ((1, 2, 2, 2), array([0.1, 0.1], dtype=float32))
    """

    def _check_input_ndim(self, inp: Tensor) -> None:
        if inp.ndim != 4:
            way = " BatchNorm1d takes those." if inp.ndim in (2, 3) else ""
            raise ValueError(
                f"BatchNorm2d: expected 4D input (got {inp.ndim}D input), (N, C, H, W); got {inp.shape}.{way}"
            )


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation with statistics over all processes; with one process the same as the others.

    >>> M.SyncBatchNorm(2)(F.ones((1, 2, 2, 2))).shape
    (1, 2, 2, 2)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        freeze: bool = False,
        group: Group = WORLD,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, freeze, **kwargs)
        self.group = group

    def _check_input_ndim(self, inp: Tensor) -> None:
        if inp.ndim not in (2, 3, 4):
            raise ValueError(f"SyncBatchNorm: expected 2D, 3D or 4D input (got {inp.ndim}D input); got {inp.shape}.")

    def forward(self, inp: Tensor) -> Tensor:
        self._check_input_ndim(inp)
        if self.freeze:
            return self._frozen(inp)
        mean, var, by_batch = self._stats()
        return sync_batch_norm(
            inp, mean, var, self.weight, self.bias, by_batch, self.momentum, self.eps, group=self.group
        )
