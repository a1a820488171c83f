"""Random tensors."""

import typing as _typing
from typing import Any as _Any

from ..core._habits import no_attribute as _no_attribute
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

if not _typing.TYPE_CHECKING:  # type checkers shall say that a name is not there

    def __getattr__(name: str) -> _Any:
        raise _no_attribute(__name__, name)
