"""Which samples form which batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

import numpy as np

from ..distributed.group import get_rank, get_world_size

__all__ = [
    "Infinite",
    "MapSampler",
    "RandomSampler",
    "ReplacementSampler",
    "Sampler",
    "SequentialSampler",
    "StreamSampler",
]


def _positive_int(who: Any, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value <= 0:
        raise ValueError(f"{type(who).__name__}: {name} should be a positive integer value, but got {name}={value}")
    return int(value)


class Sampler(ABC):
    """Base of all samplers: an iterable of batches, each a list of indices."""

    @abstractmethod
    def __init__(self) -> None:
        pass


class MapSampler(Sampler):
    """Base of samplers for datasets that are read by index. A subclass gives ``sample()``.

    Args:
        dataset: what to draw from; only its length is used.
        batch_size: samples per batch.
        drop_last: leave out a last batch that is not full.
        num_samples: how many samples all processes together draw per epoch; the dataset's length by default.
        world_size: how many processes share the epoch; by default those of ``megengine.distributed``.
        rank: which of them this is.
        seed: of the random generator; several processes that are given none use 0, so that they agree.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_samples: int | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ) -> None:
        who = type(self).__name__
        self.batch_size = _positive_int(self, "batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"{who}: drop_last should be a boolean value, but got drop_last={drop_last}")
        if num_samples is not None:
            num_samples = _positive_int(self, "num_samples", num_samples)
        group_size, group_rank = get_world_size(), get_rank()
        self.world_size = _positive_int(self, "world_size", group_size if world_size is None else world_size)
        self.rank = group_rank if rank is None else int(rank)
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"{who}: rank should be in [0, {self.world_size}), but got rank={self.rank} of "
                f"world_size={self.world_size}"
            )
        self.dataset = dataset
        self.drop_last = drop_last
        if num_samples is None and not hasattr(dataset, "__len__"):
            raise TypeError(
                f"{who}: the dataset comes first, and needs a length; got {dataset!r}. StreamSampler is for streams."
            )
        total = len(dataset) if num_samples is None else num_samples
        self.num_samples = -(-total // self.world_size)  # per process, rounded up
        if self.num_samples < self.batch_size:
            raise ValueError(
                f"{who}: num_samples should be greater than batch_size , but got num_samples={self.num_samples} "
                f"and batch_size={self.batch_size}. A batch cannot be larger than what is drawn, with or without "
                "drop_last."
            )
        self.seed = 0 if seed is None and self.world_size > 1 else seed
        self.rng = np.random.RandomState(self.seed)

    def __iter__(self) -> Iterator[list[Any]]:
        return self.batch()

    def __len__(self) -> int:
        full, rest = divmod(self.num_samples, self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def sample(self) -> Sequence[Any]:
        """The indices of one epoch, of all processes."""
        raise NotImplementedError

    def scatter(self, indices: Sequence[Any]) -> list[Any]:
        """This process's share: every ``world_size``-th index; the list is wrapped around to divide evenly."""
        wanted = self.num_samples * self.world_size
        padded = list(indices)
        if not padded:
            raise ValueError("scatter: there are no indices to share.")
        while len(padded) < wanted:
            padded += padded[: wanted - len(padded)]
        return padded[self.rank : wanted : self.world_size]

    def batch(self) -> Iterator[list[Any]]:
        """The batches of one epoch."""
        indices: Sequence[Any] = self.sample()
        if self.world_size > 1:
            indices = self.scatter(indices)
        if isinstance(indices, np.ndarray):
            indices = indices.tolist()
        for start in range(0, len(indices), self.batch_size):
            batch = list(indices[start : start + self.batch_size])
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch


def _check_indices(dataset: Any, indices: Any) -> int | None:
    """How many there are; None when all of the dataset is meant."""
    if indices is None:
        return None
    if not isinstance(indices, (Sequence, np.ndarray)) or isinstance(indices, (str, bytes)):
        raise ValueError(f"indices should be None or a sequence, but got indices={indices!r}")
    return len(indices)


class SequentialSampler(MapSampler):
    """Samples in their order, or in the order of ``indices``.

    >>> from megengine.data import SequentialSampler
    >>> list(SequentialSampler(range(5), batch_size=2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        indices: Sequence[int] | None = None,
        world_size: int | None = None,
        rank: int | None = None,
    ) -> None:
        number = _check_indices(dataset, indices)
        super().__init__(dataset, batch_size, drop_last, number, world_size, rank)
        self.indices = indices

    def sample(self) -> Sequence[Any]:
        """All indices in order."""
        return range(len(self.dataset)) if self.indices is None else self.indices


class RandomSampler(MapSampler):
    """Every sample once, in random order; each epoch has a new order from the same generator.

    >>> from megengine.data import RandomSampler
    >>> sorted(sum(RandomSampler(range(5), batch_size=2, seed=1), []))
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        indices: Sequence[int] | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ) -> None:
        number = _check_indices(dataset, indices)
        super().__init__(dataset, batch_size, drop_last, number, world_size, rank, seed)
        self.indices = indices

    def sample(self) -> Sequence[Any]:
        """All indices, shuffled."""
        order: list[Any] = self.rng.permutation(len(self.dataset) if self.indices is None else self.indices).tolist()
        return order


class ReplacementSampler(MapSampler):
    """Samples drawn with replacement, each with a probability in proportion to its weight.

    >>> from megengine.data import ReplacementSampler
    >>> list(ReplacementSampler(range(3), batch_size=4, num_samples=4, weights=[0, 1, 0]))
    [[1, 1, 1, 1]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_samples: int | None = None,
        weights: Sequence[float] | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, num_samples, world_size, rank, seed)
        self.weights: np.ndarray[Any, Any] | None = None
        if weights is None:
            return
        if not isinstance(weights, (Sequence, np.ndarray)) or isinstance(weights, (str, bytes)):
            raise ValueError(f"weights should be None or a sequence, but got weights={weights!r}")
        if len(weights) != len(dataset):
            raise ValueError(
                f"{type(self).__name__}: len(dataset)={len(dataset)} should be equal to len(weights)={len(weights)}"
            )
        values = np.asarray(weights, dtype=np.float64)
        if not np.all(np.isfinite(values)) or np.any(values < 0) or values.sum() <= 0:
            raise ValueError("weights should be finite and not negative, with a positive sum")
        self.weights = values / values.sum()

    def sample(self) -> Sequence[Any]:
        """Indices drawn for all processes."""
        number = len(self.dataset)
        size = self.num_samples * self.world_size
        if self.weights is None:
            drawn: list[int] = self.rng.randint(number, size=size).tolist()
        else:
            drawn = self.rng.choice(number, size, p=self.weights).tolist()
        return drawn


class StreamSampler(Sampler):
    """Cuts a stream into batches of ``batch_size``.

    >>> from megengine.data import StreamSampler
    >>> next(iter(StreamSampler(batch_size=3)))
    [0, 1, 2]
    """

    def __init__(self, batch_size: int = 1) -> None:
        self.batch_size = _positive_int(self, "batch_size", batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        return self.batch()

    def sample(self) -> Iterator[int]:
        """0, 1, 2, … without end."""
        return count()

    def batch(self) -> Iterator[list[int]]:
        """The positions in the stream that form each batch, without end."""
        positions = self.sample()
        while True:
            yield list(islice(positions, self.batch_size))


class Infinite(MapSampler):
    """Starts another sampler again whenever it ends, for training counted in steps.

    It is its own iterator: ``next`` works on it, and a second loop goes on where the first one stopped.

    >>> from itertools import islice
    >>> from megengine.data import Infinite, SequentialSampler
    >>> list(islice(Infinite(SequentialSampler(range(2))), 5))
    [[0], [1], [0], [1], [0]]
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.sampler_iter = iter(self.sampler)

    def sample(self) -> Any:
        """Not for this sampler: it has no last index."""
        raise NotImplementedError("sample method not supported in Infinite")

    def __iter__(self) -> Iterator[list[Any]]:
        return self

    def __next__(self) -> list[Any]:
        try:
            return next(self.sampler_iter)
        except StopIteration:  # an empty sampler ends here again instead of turning for ever
            self.sampler_iter = iter(self.sampler)
            return next(self.sampler_iter)

    def __len__(self) -> int:
        return int(np.iinfo(np.int64).max)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "sampler":
            raise AttributeError(name)
        return getattr(self.sampler, name)
