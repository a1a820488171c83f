"""Feeding data to training: datasets, samplers, transforms, and the loader that joins them.

>>> from megengine.data import DataLoader, SequentialSampler
>>> from megengine.data.dataset import ArrayDataset
>>> digits = ArrayDataset(np.arange(6), np.arange(6) * 10)
>>> for x, y in DataLoader(digits, SequentialSampler(digits, batch_size=4)):
...     print(x, y)
[0 1 2 3] [ 0 10 20 30]
[4 5] [40 50]
"""

import typing as _typing
from typing import Any as _Any

from ..core._habits import no_attribute as _no_attribute
from . import dataset, transform
from .collator import Collator
from .dataloader import DataLoader
from .sampler import (
    Infinite,
    MapSampler,
    RandomSampler,
    ReplacementSampler,
    Sampler,
    SequentialSampler,
    StreamSampler,
)

__all__ = [
    "Collator",
    "DataLoader",
    "Infinite",
    "MapSampler",
    "RandomSampler",
    "ReplacementSampler",
    "Sampler",
    "SequentialSampler",
    "StreamSampler",
    "dataset",
    "transform",
]

if not _typing.TYPE_CHECKING:  # type checkers shall say that a name is not there

    def __getattr__(name: str) -> _Any:
        raise _no_attribute(__name__, name)
