"""The two kinds of datasets, by index and by stream, and datasets made of others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

__all__ = ["ArrayDataset", "ConcatDataset", "Dataset", "StreamDataset"]


class Dataset(ABC):
    """Base of datasets whose samples are read by index, in any order."""

    @abstractmethod
    def __init__(self) -> None:
        pass

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        pass

    @abstractmethod
    def __len__(self) -> int:
        pass


class StreamDataset(Dataset):
    """Base of datasets that give one sample after the other, such as a queue or a camera.

    >>> from megengine.data.dataset import StreamDataset
    >>> class Squares(StreamDataset):
    ...     def __init__(self): ...
    ...     def __iter__(self):
    ...         return (i * i for i in range(4))
    >>> [batch for batch in mge.data.DataLoader(Squares(), mge.data.StreamSampler(2))]
    [array([0, 1]), array([4, 9])]
    """

    @abstractmethod
    def __init__(self) -> None:
        pass

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        pass

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("can not get item from StreamDataset by index")

    def __len__(self) -> int:
        raise AssertionError("StreamDataset does not have length")


class ArrayDataset(Dataset):
    """Samples held in arrays (or anything with a length and indices): sample i is ``(a[i], b[i], ...)``.

    >>> from megengine.data.dataset import ArrayDataset
    >>> ArrayDataset([1, 2], ["one", "two"])[1]
    (2, 'two')
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ValueError("ArrayDataset: needs at least one array.")
        lengths = [len(a) for a in arrays]
        if len(set(lengths)) > 1:
            raise ValueError(f"ArrayDataset: lengths of input arrays are inconsistent: {lengths}")
        self.arrays = arrays

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(a[index] for a in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])


class ConcatDataset(Dataset):
    """Several datasets one after the other.

    >>> from megengine.data.dataset import ArrayDataset, ConcatDataset
    >>> both = ConcatDataset([ArrayDataset([1, 2]), ArrayDataset([3])])
    >>> len(both), both[2], both[-3]
    (3, (3,), (1,))
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        assert self.datasets, "datasets should not be an empty iterable"
        for d in self.datasets:
            assert not isinstance(d, StreamDataset), "ConcatDataset does not support StreamDataset"
        self.cumulative_sizes = list(accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: Any) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        if index >= len(self):
            raise IndexError(f"ConcatDataset: index {index} is past the last of {len(self)} samples")
        which = bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]
