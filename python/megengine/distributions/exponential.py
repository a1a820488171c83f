"""The exponential distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..functional import broadcast_to, expm1, log, log1p
from ..random import uniform
from ..tensor import Tensor
from .distribution import Distribution

__all__ = ["Exponential"]


class Exponential(Distribution):
    """Waiting times of events that come at a given rate: density rate * exp(-rate * x).

    Args:
        rate: events per unit, above 0; a number, an array or a tensor.

    >>> from megengine.distributions import Exponential
    >>> d = Exponential(2.0)
    >>> d.mean.item(), d.variance.item(), d.sample((3,)).shape
    (0.5, 0.25, (3,))
    """

    def __init__(self, rate: Tensor | float | np.ndarray[Any, Any]) -> None:
        if not isinstance(rate, Tensor):
            rate = Tensor(np.asarray(rate, dtype=np.float32))
        self.rate = rate
        super().__init__(batch_shape=rate.shape)

    @property
    def mean(self) -> Tensor:
        """1 / rate."""
        return 1.0 / self.rate

    @property
    def stddev(self) -> Tensor:
        """1 / rate."""
        return 1.0 / self.rate

    @property
    def variance(self) -> Tensor:
        """rate ** -2."""
        return self.rate**-2

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Random values of shape ``sample_shape + rate.shape``; gradients flow to the rate."""
        u = uniform(size=self._extended_shape(sample_shape))  # in (0, 1], so its log is finite
        return -log(u) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        """log(rate) - rate * value."""
        return log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        """1 - exp(-rate * value), exact for small values too.

        >>> from megengine.distributions import Exponential
        >>> Exponential(1.0).cdf(mge.tensor(0.0)).item()
        0.0
        """
        return -expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        """-log(1 - value) / rate."""
        return -log1p(-value) / self.rate

    def expand(self, batch_shape: Sequence[int]) -> Exponential:
        """The same distribution with its rate repeated to ``batch_shape``."""
        return Exponential(broadcast_to(self.rate, tuple(batch_shape)))
