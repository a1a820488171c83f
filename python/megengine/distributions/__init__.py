"""Probability distributions."""

from .distribution import Distribution
from .exponential import Exponential

__all__ = ["Distribution", "Exponential"]
