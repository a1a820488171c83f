"""The base of distributions."""

from __future__ import annotations

from collections.abc import Sequence

from ..functional import sqrt
from ..tensor import Tensor

__all__ = ["Distribution"]

Shape = tuple[int, ...]


class Distribution:
    """What distributions share: shapes, moments, and functions of a value.

    Args:
        batch_shape: the shape of independent parameter sets.
        event_shape: the shape of one sample of one set.

    >>> from megengine.distributions import Distribution
    >>> Distribution((2,), (3,))
    Distribution(batch_shape=(2,), event_shape=(3,))
    """

    def __init__(self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = ()) -> None:
        self._batch_shape = tuple(batch_shape)
        self._event_shape = tuple(event_shape)

    @property
    def batch_shape(self) -> Shape:
        """The shape of independent parameter sets."""
        return self._batch_shape

    @property
    def event_shape(self) -> Shape:
        """The shape of one sample of one parameter set."""
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError(f"{type(self).__name__}: mean is not defined.")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__}: variance is not defined.")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return sqrt(self.variance)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Random values of shape ``sample_shape + batch_shape + event_shape``."""
        raise NotImplementedError(f"{type(self).__name__}: sample is not defined.")

    def log_prob(self, value: Tensor) -> Tensor:
        """The log of the density at ``value``."""
        raise NotImplementedError(f"{type(self).__name__}: log_prob is not defined.")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most ``value``."""
        raise NotImplementedError(f"{type(self).__name__}: cdf is not defined.")

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of ``cdf``."""
        raise NotImplementedError(f"{type(self).__name__}: icdf is not defined.")

    def expand(self, batch_shape: Sequence[int]) -> Distribution:
        """The same distribution with its parameters repeated to ``batch_shape``."""
        raise NotImplementedError(f"{type(self).__name__}: expand is not defined.")

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Shape:
        return (*(int(d) for d in sample_shape), *self._batch_shape, *self._event_shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={self._batch_shape}, event_shape={self._event_shape})"
