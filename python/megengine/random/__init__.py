"""Random tensors."""

from .rng import RNG, beta, exponential, gamma, multinomial, normal, permutation, poisson, seed, shuffle, uniform

__all__ = [
    "RNG",
    "beta",
    "exponential",
    "gamma",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "seed",
    "shuffle",
    "uniform",
]
