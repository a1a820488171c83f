"""A histogram whose range can grow, and the part of it that is best quantised.

The error of quantisation to n levels is estimated as if the values of a bin were spread evenly over it: a stretch from
``a`` to ``b`` away from the middle of its level, with density d, adds d * (b**3 - a**3) / 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_STEP = 1e-5  # of the quantiles that are cut off


@dataclass(frozen=True)
class Histogram:
    """Counts of values in equal bins from ``low`` to ``high``."""

    counts: npt.NDArray[np.floating]
    low: float
    high: float

    @property
    def reach(self) -> float:
        return _difference(self.high, self.low)

    @staticmethod
    def of(values: npt.NDArray[np.floating], bins: int) -> Histogram:
        low, high = float(values.min()), float(values.max())
        return Histogram(_count(values, bins, low, high), low, high)

    def with_values(self, values: npt.NDArray[np.floating], parts: int) -> Histogram:
        """Also those; the range grows to a whole number of ``1/parts`` of bins where it must."""
        bins = len(self.counts)
        low, high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        if (low, high) == (self.low, self.high):
            return Histogram(self.counts + _count(values, bins, low, high), low, high)
        if self.low == self.high:  # one value, many times
            old = _count(np.array([self.low]), bins, low, high) * self.counts.sum()
            return Histogram(old + _count(values, bins, low, high), low, high)
        part = self.reach / (bins * parts)
        reach = _difference(high, low)
        # A new bin is so many parts of an old one; that may reach a little beyond the values, on both sides.
        width = math.ceil(reach / (bins * part))
        beyond = (width * bins * part - reach) / 2
        low, high = low - beyond, high + beyond
        start = round(_difference(self.low, low) / part)
        fine = np.zeros(bins * width)
        fine[start : start + bins * parts] = np.repeat(self.counts, parts)[: len(fine) - start]
        old = fine.reshape(bins, width).sum(axis=1) / parts
        return Histogram(old + _count(values, bins, low, high), low, high)

    def best_range(self, levels: int) -> tuple[float, float]:
        """The stretch found by cutting off 1e-5 of the values after another, from the end where that cuts more bins, as
        long as the error does not grow."""
        bins, total = len(self.counts), float(self.counts.sum())
        below = np.cumsum(self.counts, dtype=np.float64)
        first, last, alpha, beta, least = 0, bins - 1, 0.0, 1.0, math.inf
        while alpha < beta:
            next_alpha, next_beta = alpha + _STEP, beta - _STEP
            left, right = first, last
            while left < last and below[left] < next_alpha * total:
                left += 1
            while right > first and below[right] > next_beta * total:
                right -= 1
            if left - first > last - right:
                cut, alpha = (left, last), next_alpha
            else:
                cut, beta = (first, right), next_beta
            if cut == (first, last):
                continue
            error = self._error(*cut, levels)
            if error > least:
                break
            least = error
            first, last = cut
        low, width = np.float32(self.low), np.float32(self.reach / bins)
        return float(low + width * np.float32(first)), float(low + width * np.float32(last + 1))

    def _error(self, first: int, last: int, levels: int) -> float:
        """Of quantising to ``levels`` levels between the bins ``first`` and ``last``; values outside take the ends."""
        bins = len(self.counts)
        width = self.reach / bins
        level = width * (last - first + 1) / levels
        if level == 0.0:
            return 0.0
        begin = (np.arange(bins) - first) * width
        end = begin + width
        of_begin = np.clip(np.floor(begin / level), 0, levels - 1)
        of_end = np.clip(np.floor(end / level), 0, levels - 1)
        density = self.counts / width

        def spread(a: Any, b: Any) -> Any:
            return density * (b**3 - a**3) / 3

        error = spread(begin - (of_begin + 0.5) * level, level / 2)
        error = error + (of_end - of_begin - 1) * spread(-level / 2, level / 2)
        error = error + spread(-level / 2, end - (of_end + 0.5) * level)
        return float(error.sum())


def _difference(a: float, b: float) -> float:
    """In float32, as the ends of the range are; the last bits of scales follow from such steps."""
    return float(np.float32(a) - np.float32(b))


def _count(values: npt.NDArray[np.floating], bins: int, low: float, high: float) -> npt.NDArray[np.floating]:
    return np.histogram(values, bins=bins, range=(low, high))[0].astype(np.float64)
