"""Random tensors."""

from .rng import (
    RNG,
    beta,
    exponential,
    gamma,
    get_rng_state,
    multinomial,
    normal,
    permutation,
    poisson,
    seed,
    set_rng_state,
    shuffle,
    uniform,
)

__all__ = [
    "RNG",
    "beta",
    "exponential",
    "gamma",
    "get_rng_state",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "seed",
    "set_rng_state",
    "shuffle",
    "uniform",
]
