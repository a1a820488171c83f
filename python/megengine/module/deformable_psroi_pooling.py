"""Pooling of regions at learned positions."""

from __future__ import annotations

from typing import Any

from ..functional import deformable_psroi_pooling
from ..tensor import Tensor
from .module import Module


class DeformablePSROIPooling(Module):
    """Average pooling of regions whose parts are moved by learned offsets.

    >>> pool = M.DeformablePSROIPooling(True, 1, 2, 2, 2, 1.0)
    >>> pool(F.ones((1, 3, 4, 4)), mge.tensor([[0.0, 0.0, 0.0, 3.0, 3.0]]), F.zeros((1, 2, 1, 1))).shape
    (1, 3, 2, 2)
    """

    def __init__(
        self,
        no_trans: bool,
        part_size: int,
        pooled_h: int,
        pooled_w: int,
        sample_per_part: int,
        spatial_scale: float,
        trans_std: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.no_trans = no_trans
        self.part_size = part_size
        self.pooled_h = pooled_h
        self.pooled_w = pooled_w
        self.sample_per_part = sample_per_part
        self.spatial_scale = spatial_scale
        self.trans_std = trans_std

    def forward(self, inp: Tensor, rois: Tensor, trans: Tensor) -> Tensor:
        return deformable_psroi_pooling(
            inp,
            rois,
            trans,
            self.no_trans,
            self.part_size,
            self.pooled_h,
            self.pooled_w,
            self.sample_per_part,
            self.spatial_scale,
            self.trans_std,
        )
