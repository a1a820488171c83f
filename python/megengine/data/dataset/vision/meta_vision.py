"""The base of image datasets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..meta_dataset import Dataset

__all__ = ["VisionDataset"]


class VisionDataset(Dataset):
    """A dataset in a folder.

    Args:
        root: the folder.
        order: what a sample consists of, in which order; ``("image",)`` by default.
        supported_order: what it may consist of.
    """

    _repr_indent = 4

    def __init__(
        self, root: str, *, order: Sequence[str] | None = None, supported_order: Sequence[str] | None = None
    ) -> None:
        self.root = os.path.expanduser(root) if isinstance(root, (str, bytes)) else os.fspath(root)
        order = ("image",) if order is None else order
        if isinstance(order, str) or not isinstance(order, Sequence):
            raise ValueError(f"order should be a sequence, but got order={order}")
        if supported_order is not None:
            for kind in order:
                if kind not in supported_order:
                    raise NotImplementedError(f"{kind} is unsupported data type")
        self.order = order

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError
